"""Which exercises there are, and where the catalogue keeps them."""

import difflib
import functools
import importlib
from pathlib import Path
from typing import cast

from grader.exercises.spec import Case, Expect, Question, Task

CATALOG = Path(__file__).parents[1] / "catalog"


class UnknownExercise(LookupError):
    """There is no exercise of this name; the message says which come close."""


@functools.cache
def names() -> tuple[str, ...]:
    """The names of all exercises, which are the names of the functions that learners write."""
    return tuple(sorted(path.parent.name for path in CATALOG.glob("*/task.py")))


def closest(name: str) -> str:
    """Return the end of a sentence about an unknown name: the exercise that was probably meant."""
    close = difflib.get_close_matches(name, names(), n=1)
    return f"did you mean {close[0]}?" if close else "`python -m grader progress` lists the exercises."


def task(name: str) -> Task:
    """The exercise's `task` module. Raises UnknownExercise."""
    if name not in names():
        raise UnknownExercise(f"There is no exercise named {name}; {closest(name)}")
    return cast(Task, importlib.import_module(f"grader.catalog.{name}.task"))


def expect(name: str) -> Expect:
    """The exercise's `expect` module, which only the judge may see."""
    return cast(Expect, importlib.import_module(f"grader.catalog.{name}.expect"))


def cases(name: str, seed: int) -> tuple[Case | Question, ...]:
    """Draw from a seed the cases and questions that every answer to an exercise is tried on."""
    import numpy as np  # late: the command line knows the exercises without it and without JAX

    from grader.exercises.drawing import with_drawn
    from grader.util.jax_settings import as_they_come

    with as_they_come():
        own = tuple(task(name).cases(np.random.default_rng(seed)))
        return with_drawn(task(name), own, np.random.default_rng([seed, 2]))

"""Find the exercises of the catalog, and generate the cases that test answers.

The `cases` of a task cover the ends of every range. This is not enough, because an answer that is right only at these
ends, or that confuses two calls with the same structure, must also fail. So every answer is also tested on a few random
structures within the ranges, and on one structure a second time, with everything else random.
"""

import dataclasses
import difflib
import functools
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from grader.exercises.spec import Case, Expect, Integers, OneOf, Question, Structure, Task, TaskOfAnyStructure

if TYPE_CHECKING:  # the command line knows the exercises without NumPy and without JAX
    import numpy as np

CATALOG = Path(__file__).parents[1] / "catalog"

# Exercises of earlier versions, which may still be in a learner's progress or submission, and what replaces them.
REMOVED = {
    "all_but": "policy_from_rules",
    "checkpoint_each_layer": "two_checkpoints",
    "either": "policy_from_rules",
    "pin_args": "cse_lab",
    "recursive_checkpoint": "nested_scan",
    "regex_policy": "policy_from_rules",
    "sqrt_chain": "nested_scan",
}

_CASES = 2  # tracing and running a case takes a few hundredths of a second
_QUESTIONS = 10  # at most half as many as the task's own questions, because a question can be slow
_TRIES = 60  # attempts to find a random structure that fits


class UnknownExercise(LookupError):
    """Raised if there is no exercise with a name; the message suggests similar names."""


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all exercises, which are the names of the functions that learners write."""
    return tuple(sorted(path.parent.name for path in CATALOG.glob("*/task.py")))


def closest(name: str) -> str:
    """Return the end of a sentence about an unknown name: the exercise that was probably meant."""
    return suggestion_for(name) or "`python -m grader progress` lists the exercises."


def suggestion_for(name: str) -> str | None:
    """Return the end of a sentence about an unknown name that is similar to an exercise's name, or that was removed."""
    if name in REMOVED:
        return removal(name, "it")
    close = difflib.get_close_matches(name, names(), n=1)
    return f"did you mean {close[0]}?" if close else None


def removal(name: str, subject: str = "", replacement: str = "") -> str:
    """Return a sentence that names the exercise that replaces a removed one.

    Args:
      name: the removed exercise.
      subject, replacement: the words for the removed exercise and for the other one; by default, their names.
    """
    subject, replacement = subject or f"The exercise {name}", replacement or REMOVED[name]
    return f"{subject} was removed from the workbook, and {replacement} replaces it."


def task(name: str) -> Task:
    """Return the exercise's `task` module. Raises UnknownExercise."""
    if name not in names():
        raise UnknownExercise(f"There is no exercise named {name}; {closest(name)}")
    return cast(Task, importlib.import_module(f"grader.catalog.{name}.task"))


def expect(name: str) -> Expect:
    """Return the exercise's `expect` module, which only the judge may see."""
    return cast(Expect, importlib.import_module(f"grader.catalog.{name}.expect"))


def cases(name: str, seed: int) -> tuple[Case | Question, ...]:
    """Generate from a seed the cases and questions that test every answer to an exercise."""
    import numpy as np  # imported here, because the command line must start without NumPy and JAX

    from grader.util.jax_settings import default_settings

    with default_settings():
        own = tuple(task(name).cases(np.random.default_rng(seed)))
        return with_drawn(task(name), own, np.random.default_rng([seed, 2]))


def with_drawn(task: Task, asked: Sequence[Case | Question], rng: "np.random.Generator") -> tuple[Case | Question, ...]:
    """Return a task's own cases and additional random ones, all cases before all questions.

    A task without a `case` function gets no additional cases.
    """
    if not takes_any_structure(task):
        return tuple(asked)
    known = ({symbol: each.structure.get(symbol) for symbol in task.ranges} for each in asked)
    repeated = [structure for structure in known if is_allowed(structure, task)]
    structures: list[Structure] = [repeated[int(rng.integers(len(repeated)))]] if repeated else []
    most = min(_QUESTIONS, len(asked) // 2) if isinstance(asked[0], Question) else _CASES
    structures += [each for _ in range(most - len(structures)) if (each := draw_structure(task, rng))]
    by_name = {each.name: each for each in asked}
    for structure in structures:
        made = task.case(rng, **structure)
        if made.name in by_name:
            sizes = [f"{symbol} = {value}" for symbol, value in structure.items() if isinstance(value, int)]
            same = by_name[made.name].structure == made.structure  # the name already identifies the sizes
            made = dataclasses.replace(made, name=", ".join((made.name, *([] if same else sizes), "with new values")))
        by_name.setdefault(made.name, made)
    return tuple(sorted(by_name.values(), key=lambda each: isinstance(each, Question)))


def takes_any_structure(task: Task) -> TypeGuard[TaskOfAnyStructure]:
    """Return whether a task can build a case of any structure within its ranges."""
    return hasattr(task, "case")


def draw_structure(task: TaskOfAnyStructure, rng: "np.random.Generator") -> Structure | None:
    """Return a random structure of a task, with numbers distributed over all orders of magnitude; None if none is
    found."""
    for _ in range(_TRIES):
        structure: dict[str, Any] = {}
        for symbol in _in_order(task.ranges):
            values: Sequence[Any] = (range_ := task.ranges[symbol]).within(structure)
            if not values:
                break
            place = int((len(values) + 1) ** rng.random()) if isinstance(range_, Integers) else 0
            structure[symbol] = values[place - 1 if place else int(rng.integers(len(values)))]
        else:
            if _is_fitting(task, structure):
                return structure
    return None


def is_allowed(structure: Structure, task: TaskOfAnyStructure) -> bool:
    """Return whether a structure has an allowed value for each symbol of the task's ranges, and no others."""
    if structure.keys() != task.ranges.keys():
        return False
    within = (structure[symbol] in task.ranges[symbol].within(structure) for symbol in _in_order(task.ranges))
    return all(within) and _is_fitting(task, structure)


def _is_fitting(task: TaskOfAnyStructure, structure: Structure) -> bool:
    return bool(getattr(task, "fits", lambda structure: True)(structure))


def _in_order(ranges: Mapping[str, Integers | OneOf]) -> list[str]:
    """Return the symbols, each after the symbols that its range refers to."""
    order: list[str] = []
    while len(order) < len(ranges):
        order += [symbol for symbol in ranges if symbol not in order and _symbolic_ends(ranges[symbol]) <= {*order}]
    return order


def _symbolic_ends(range_: Integers | OneOf) -> set[str]:
    ends = (range_.low, range_.high) if isinstance(range_, Integers) else ()
    return {end for end in ends if isinstance(end, str)}

"""Exercises: the cases or questions that an answer is tried on, and where the catalogue keeps them.

A `task` module has `parameters` and `signature` (for messages), `cases(rng)`, and `shown`: the case whose bytes and
FLOPs a learner is shown as a picture, with a name that follows on "what that costs"; None where answers are plain data.
If an answer may have open loops, which run until their condition says so, it has `max_turns` too: the turns of all such
loops together, in all cases, at which an answer counts as one that does not end.
"""

import difflib
import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

CATALOG = Path(__file__).parent / "catalog"


class UnknownExercise(LookupError):
    """There is no exercise of this name; the message says which come close."""


@dataclass(frozen=True)
class Case:
    """One way of trying an answer: as a function that is differentiated.

    Attributes:
      name: what a finding calls it, such as `"bfloat16"`.
      arguments: shapes and dtypes of that function's arguments.
      transform: what is done to that function, such as `jax.vmap`.
      apply: makes that function from an answer that is none itself: calls a transformation of functions with its
        arguments, or gives a policy to `jax.checkpoint`.
      function: what such an answer is applied to, and what the outcome must compute. It names its values with a
        keyword-only argument `name=jax.ad_checkpoint.checkpoint_name`, by which the judge learns them. None if the
        answer is the function itself, since then `expect.reference` says what it must compute.
    """

    name: str
    arguments: tuple[Any, ...]  # jax.ShapeDtypeStruct: this module is read without importing JAX
    transform: Callable[[Callable], Callable] = lambda function: function
    apply: Callable[[Callable], Callable] = lambda answer: answer
    function: Callable | None = None


def renamed(function: Callable, prefix: str) -> Callable:
    """A case's `function`, with `prefix` before the names of its values; the judge knows them by the old ones."""
    from jax.ad_checkpoint import checkpoint_name  # not above: this module is read without importing JAX

    @functools.wraps(function)
    def longer(*arguments):
        return function(*arguments, name=lambda value, name: checkpoint_name(value, prefix + name))

    return longer


@dataclass(frozen=True)
class Question:
    """One way of trying an answer that is plain data: it is called, and what it returns is compared.

    Attributes:
      name: what a finding calls it, such as `"a scan"`.
      arguments: what the answer is called with: functions, arrays, whatever the exercise says.
    """

    name: str
    arguments: tuple[Any, ...]


@functools.cache
def names() -> tuple[str, ...]:
    """The names of all exercises, which are the names of the functions that learners write."""
    return tuple(sorted(path.parent.name for path in CATALOG.glob("*/task.py")))


def closest(name: str) -> str:
    """A few words that lead from a name that is no exercise to the one that was meant."""
    close = difflib.get_close_matches(name, names(), n=1)
    return f"did you mean {close[0]}?" if close else f"the exercises are: {', '.join(names())}."


def task(name: str) -> ModuleType:
    """The exercise's `task` module: all that tracing an answer needs. Raises UnknownExercise."""
    if name not in names():
        raise UnknownExercise(f"There is no exercise named {name}; {closest(name)}")
    return importlib.import_module(f"grader.catalog.{name}.task")


def expect(name: str) -> ModuleType:
    """The exercise's `expect` module: the reference and the requirements, which only the judge may see."""
    return importlib.import_module(f"grader.catalog.{name}.expect")

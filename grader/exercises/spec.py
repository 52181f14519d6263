"""Exercises: the cases or questions that an answer is tried on, and where the catalogue keeps them.

A `task` module has `parameters` and `signature` (for messages), `cases(rng)`, and `shown`: the case whose bytes and
FLOPs a learner is shown as a picture, with a name that follows on "what that costs"; None where answers are plain data.
If an answer may have dynamic loops, which run until their condition says so, it has `max_trip_count` too: the trips of
all such loops together, in all cases, at which an answer counts as one that does not end.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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

    def differentiated(self, answer: Callable) -> Callable:
        """The function that an answer makes of this case, which is what is differentiated."""
        return self.transform(self.apply(answer))


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

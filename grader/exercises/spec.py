"""Exercises: the cases or questions that an answer is tried on, and what the catalogue's modules must have."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # this module is read without importing JAX or NumPy
    import numpy as np

    from grader.exercises.hints import Hint
    from grader.exercises.requirements import Mistake, Requirement


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


class Task(Protocol):
    """An exercise's `task` module: all that tracing an answer needs, and what its page says.

    If an answer may have dynamic loops, which run until their condition says so, there is `max_trip_count` too: the
    trips of all such loops together, in all cases, at which an answer counts as one that does not end.

    Attributes:
      parameters: the names of an answer's arguments, in their order.
      signature: the answer as the page spells it, such as `"predict_residuals(op)"`.
      returns: what an answer that is plain data returns, in words; other exercises do without.
      shown: the case whose bytes and FLOPs a learner is shown as a picture, with a name that follows on "what that
        costs"; None where answers are plain data.
    """

    parameters: tuple[str, ...]
    signature: str
    returns: str
    shown: Case | None

    def cases(self, rng: "np.random.Generator") -> Sequence[Case | Question]:
        """What an answer is tried on: cases, or questions, in an order and of shapes that are drawn."""


class Expect(Protocol):
    """An exercise's `expect` module: what only the judge may see.

    Attributes:
      mistakes: what is often computed in place of what is asked for.
      error_questions: patterns of what goes wrong in an answer, and the question to ask then; the first that is found.
      hints: steps towards an answer.
      requirements: what is asked of a backward pass: groups, each with the names of the cases that it is about.
      otherwise: the question to ask where an answer that is plain data is wrong in none of the usual ways.
    """

    mistakes: Sequence["Mistake"]
    error_questions: Sequence[tuple[str, str]]
    hints: Sequence["Hint"]
    requirements: Sequence[tuple[tuple[str, ...], Sequence["Requirement"]]]
    otherwise: str

    def __hash__(self) -> int: ...  # as all modules have one

    def reference(self, *arguments: Any) -> Any:
        """What is right: the result and the named values, of a case's arguments, unless the case has a function of its
        own; or plain data, a `Choice`, or a `CostedAnswer`, of a question's."""

    def draw(self, rng: "np.random.Generator", argument: Any) -> "np.ndarray":
        """An input of an argument's shape and dtype."""

"""Exercises: the cases or questions that an answer is tried on, and what the catalogue's modules must have."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from grader.util.words import with_article

if TYPE_CHECKING:
    import numpy as np

    from grader.exercises.feedback import Feedback, KnownMistake
    from grader.exercises.requirements import Requirement


@dataclass(frozen=True)
class Choice:
    """What a reference returns where some names are to be chosen: order and spaces do not matter.

    A finding says how many are right, not which: the names are what a learner is to find out.

    Attributes:
      chosen: the right names.
      among: all names that the exercise's page offers.
    """

    chosen: tuple[str, ...]
    among: tuple[str, ...]


@dataclass(frozen=True)
class CostedAnswer:
    """What a reference returns where many answers are right: they are carried out, and what they cost is compared.

    Attributes:
      what: what such an answer is, such as `"schedule"`; it is a list.
      cost: what a list costs, a number of `unit`. It takes the answer as it came, and raises Impossible if that breaks
        a rule.
      least: what the best ones cost.
      unit: what the cost is a number of, such as `"steps"`, with an s.
    """

    what: str
    cost: Callable[[list], int]
    least: int
    unit: str


class Impossible(Exception):
    """A plan breaks a rule of the page.

    Args:
      text: the rule, in words.
      ask: the question that leads on.
      mistakes: the known mistakes that lead to this, if a number is wrong; a finding names the one that explains most.
    """

    def __init__(self, text: str, ask: str, mistakes: "Sequence[KnownMistake]" = ()):
        super().__init__(text, ask)
        self.text, self.ask, self.mistakes = text, ask, mistakes


def plain(value: Any) -> Any:
    """Return a value in JSON's types. Raises TypeError, which says what it is, for what is no plain data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Choice):
        return sorted(value.chosen)
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dict with keys that are not strings")
        return {key: plain(element) for key, element in value.items()}
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number that came from an array
        return plain(value.item())
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise TypeError("an array" if hasattr(value, "__array__") else "the shape and dtype of an array")
    raise TypeError(with_article(type(value).__name__))


@dataclass(frozen=True)
class Integers:
    """What an exercise's page allows a number to be.

    Attributes:
      low: the least that it may be: a number, or the symbol that stands for another one.
      high: the most, likewise. Both ends are allowed.
      besides: what else is asked of it, such as `"a power of two"`.
    """

    low: int | str
    high: int | str
    besides: str = ""

    def within(self, structure: "Structure") -> Sequence[int]:
        """Return the allowed numbers in increasing order, given the other numbers of a structure."""
        low, high = (structure[end] if isinstance(end, str) else end for end in (self.low, self.high))
        kind, _, of = self.besides.removeprefix("a ").partition(" of ")
        whole = structure.get(of.strip("`"), 1)
        match kind:
            case "multiple":
                return range(-(-low // whole) * whole, high + 1, whole)
            case "divisor":
                return [number for number in range(low, high + 1) if whole % number == 0]
            case "power":
                return [number for number in range(low, high + 1) if number & (number - 1) == 0]
        return range(low, high + 1)

    def __str__(self) -> str:
        low, high = (f"`{end}`" if isinstance(end, str) else str(end) for end in (self.low, self.high))
        return f"{low} to {high}{f', {self.besides}' if self.besides else ''}"


@dataclass(frozen=True)
class OneOf:
    """What an exercise's page allows something to be that is no number, such as a dtype.

    Attributes:
      values: each that it may be, as the page spells it.
    """

    values: tuple[str, ...]

    def within(self, structure: "Structure") -> Sequence[str]:
        """Return the allowed values; they depend on nothing else."""
        return self.values

    def __str__(self) -> str:
        return ", ".join(f"`{value}`" for value in self.values)


# What a case is made for: a value for each symbol of the task's ranges.
type Structure = Mapping[str, Any]


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
      structure: what this case drew from the task's `ranges`, by the same symbols; `expect.requirements` reads it.
    """

    name: str
    arguments: tuple[Any, ...]  # jax.ShapeDtypeStruct: this module is read without importing JAX
    transform: Callable[[Callable], Callable] = lambda function: function
    apply: Callable[[Callable], Callable] = lambda answer: answer
    function: Callable | None = None
    structure: Structure = field(default_factory=dict, compare=False)

    def differentiated(self, answer: Callable) -> Callable:
        """Return the function that an answer makes of this case, which is what is differentiated."""
        return self.transform(self.apply(answer))


def given(function: Callable, called: Callable[[str], str] = lambda name: name) -> Callable:
    """Return a case's `function` as an answer is given it: it takes its positional parameters and nothing else, as a
    learner's own would, and its values have the names that `called` makes of those by which the judge knows them."""
    from jax.ad_checkpoint import checkpoint_name  # not above: this module is read without importing JAX

    code = function.__code__
    parameters = ", ".join(code.co_varnames[: code.co_argcount])
    names = functools.partial(function, name=lambda value, name: checkpoint_name(value, called(name)))
    # Not `*arguments` under a signature of theirs: how many it takes, what they are called and what is said where one
    # is missing are Python's own then, by whatever way an answer looks.
    plain = eval(compile(f"lambda {parameters}: names({parameters})", __file__, "eval"), {"names": names})
    functools.update_wrapper(plain, function)
    del plain.__wrapped__
    return plain


@dataclass(frozen=True)
class Question:
    """One way of trying an answer: what it is asked for is plain data, and that is compared.

    Attributes:
      name: what a finding calls it, such as `"a scan"`.
      arguments: what the answer is called with: functions, arrays, whatever the exercise says.
      ask: asks for the data, given what the answer returned: a policy says something about operations, for instance.
      structure: what this question drew from the task's `ranges`, by the same symbols.
    """

    name: str
    arguments: tuple[Any, ...]
    ask: Callable[[Any], Any] = lambda returned: returned
    structure: Structure = field(default_factory=dict, compare=False)

    def data(self, answer: Callable) -> Any:
        """Return the data of an answer, or of the reference."""
        return self.ask(answer(*self.arguments))


class Task(Protocol):
    """An exercise's `task` module: all that tracing an answer needs, and what its page says.

    If an answer may have dynamic loops, which run until their condition says so, there is `max_trip_count` too: the
    trips of all such loops together, in all cases, at which an answer counts as one that does not end.

    If an answer is for several devices, there is `devices`: how many of the CPU's a learner's page finds, wherever it
    runs but in a notebook, whose first cell says so itself. To trace and to judge `jax.shard_map` none is needed: a
    case's `transform` can map over a `jax.sharding.AbstractMesh`.

    Attributes:
      parameters: the names of an answer's arguments, in their order.
      ranges: what the page's table allows, by the symbols that stand for it there: numbers of layers, sizes, dtypes.
        Cases are drawn from all of it.
      signature: the answer as the page spells it, such as `"predict_residuals(op)"`.
      returns: what an answer that is plain data returns, in words; other exercises do without.
      shown: the case whose bytes and FLOPs a learner is shown as a picture, with a name that follows on "what that
        costs"; None where answers are plain data.
    """

    parameters: tuple[str, ...]
    ranges: Mapping[str, Integers | OneOf]
    signature: str
    returns: str
    shown: Case | None

    def cases(self, rng: "np.random.Generator") -> Sequence[Case | Question]:
        """What an answer is tried on: cases, or questions, whose structure and shapes are drawn.

        Both ends of every range are among them, each choice is, and something between is drawn. They come in the order
        in which findings show them, simple ones first; answers are tried on them in another one. Where an answer is
        both differentiated and asked, as a policy is, cases come before questions.
        """


class TaskOfAnyStructure(Task, Protocol):
    """A task that can ask about any structure within its ranges; where not all of these go together, `fits` takes one
    and says whether it does."""

    def case(self, rng: "np.random.Generator", **structure: Any) -> Case | Question:
        """The case, or question, of a structure, with all else drawn."""


class Expect(Protocol):
    """An exercise's `expect` module: what only the judge may see.

    Attributes:
      mistakes: what is often computed in place of what is asked for.
      feedback: the texts of hints, known mistakes and questions, from `feedback.toml`.
    """

    mistakes: Sequence["KnownMistake"]
    feedback: "Feedback"

    def __hash__(self) -> int: ...  # as all modules have one

    def reference(self, *arguments: Any) -> Any:
        """What is right: the result and the named values, of a case's arguments, unless the case has a function of its
        own; or plain data, a `Choice`, or a `CostedAnswer`, of a question's."""

    def requirements(self, case: Case) -> Sequence[Sequence["Requirement"]]:
        """What is asked of a case's two passes, in groups: of a group that any case does not meet, all that is found is
        said, and nothing of the groups behind it. An exercise whose answers are plain data has none."""

    def sample_input(self, rng: "np.random.Generator", argument: Any) -> "np.ndarray":
        """An input of an argument's shape and dtype."""

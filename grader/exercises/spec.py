"""Exercises: the cases or questions that test an answer, and the interfaces of the catalog's modules."""

import functools
import re
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
    """A reference's result for a choice of names. The order of the names and spaces do not matter.

    A finding says how many names are right, but not which, because finding the names is the exercise.

    Attributes:
      chosen: the right names.
      among: all names that the exercise's page offers.
    """

    chosen: tuple[str, ...]
    among: tuple[str, ...]


@dataclass(frozen=True)
class CostedAnswer:
    """A reference's result if many answers are right. An answer, which is a list, is judged by its cost.

    Attributes:
      what: the name of such an answer, such as `"schedule"`.
      cost: a function that returns the cost of an unchecked answer, in `unit`. It raises Impossible if the answer
        breaks a rule.
      least: the cost of the best answers.
      unit: the unit of the cost in the plural, such as `"steps"`.
    """

    what: str
    cost: Callable[[list], int]
    least: int
    unit: str


class Impossible(Exception):
    """Raised if an answer breaks a rule of the page.

    Args:
      text: the rule, in words.
      ask: the question for the learner.
      mistakes: if a number is wrong, the known mistakes that may explain it; a finding names the most likely one.
      what: what the answer does, before the text.
    """

    def __init__(self, text: str, ask: str, mistakes: "Sequence[KnownMistake]" = (), what: str = "breaks a rule"):
        super().__init__(text, ask)
        self.text, self.ask, self.mistakes, self.what = text, ask, mistakes, what


def plain(value: Any) -> Any:
    """Return a value as JSON's types. Raises TypeError with a description of the value if it is not plain data."""
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
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number from an array
        return plain(value.item())
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise TypeError("an array" if hasattr(value, "__array__") else "the shape and dtype of an array")
    raise TypeError(with_article(type(value).__name__))


@dataclass(frozen=True)
class Integers:
    """The integers that an exercise's page allows for a number.

    Attributes:
      low: the minimum: a number, or the symbol of another number.
      high: the maximum, likewise. Both ends are allowed.
      condition: a further condition, such as `"a power of two"`.
    """

    low: int | str
    high: int | str
    condition: str = ""

    def within(self, structure: "Structure") -> Sequence[int]:
        """Return the allowed numbers in increasing order, given the other numbers of a structure."""
        low, high = (structure[end] if isinstance(end, str) else end for end in (self.low, self.high))
        kind, _, of = self.condition.removeprefix("a ").partition(" of ")
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
        return f"{low} to {high}{f', {self.condition}' if self.condition else ''}"


@dataclass(frozen=True)
class OneOf:
    """The values that an exercise's page allows for something other than a number, such as a dtype.

    Attributes:
      values: the allowed values, as the page spells them.
    """

    values: tuple[str, ...]

    def within(self, structure: "Structure") -> Sequence[str]:
        """Return the allowed values, which do not depend on the structure."""
        return self.values

    def __str__(self) -> str:
        return ", ".join(f"`{value}`" for value in self.values)


# A value for each symbol of the task's ranges.
type Structure = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A test of an answer as a function that is differentiated.

    Attributes:
      name: its name in findings, such as `"bfloat16"`.
      arguments: the shapes and dtypes of the function's arguments.
      transform: a transformation of the function, such as `jax.vmap`.
      apply: returns the function for an answer that is not this function itself: for example, it calls an answer that
        transforms functions, or passes a policy to `jax.checkpoint`.
      function: the function that such an answer is applied to, whose result it must preserve. The function names its
        values with a keyword-only argument `name=jax.ad_checkpoint.checkpoint_name`, through which the judge gets the
        values. None if the answer is the function itself; then `expect.reference` defines the result.
      structure: the case's values for the symbols of the task's `ranges`; `expect.requirements` reads them.
    """

    name: str
    arguments: tuple[Any, ...]  # jax.ShapeDtypeStruct: this module is read without importing JAX
    transform: Callable[[Callable], Callable] = lambda function: function
    apply: Callable[[Callable], Callable] = lambda answer: answer
    function: Callable | None = None
    structure: Structure = field(default_factory=dict, compare=False)

    def differentiated(self, answer: Callable) -> Callable:
        """Return the function to differentiate, for an answer in this case."""
        return self.transform(self.apply(answer))


def given(function: Callable, called: Callable[[str], str] = lambda name: name) -> Callable:
    """Return a case's `function` in the form that an answer gets: with positional parameters only, like a learner's own
    function. `called` maps the judge's names of the values to the names in this function."""
    from jax.ad_checkpoint import checkpoint_name  # imported here, because this module must not import JAX

    code = function.__code__
    parameters = ", ".join(code.co_varnames[: code.co_argcount])
    names = functools.partial(function, name=lambda value, name: checkpoint_name(value, called(name)))
    # Not a function of `*arguments` with a `__signature__`: this function has a real signature, however an answer
    # inspects it, and a missing argument gives Python's own error.
    plain = eval(compile(f"lambda {parameters}: names({parameters})", __file__, "eval"), {"names": names})
    functools.update_wrapper(plain, function)
    del plain.__wrapped__
    return plain


@dataclass(frozen=True)
class Question:
    """A test of an answer that returns plain data, which is compared with the reference's data.

    Attributes:
      name: its name in findings, such as `"a scan"`.
      arguments: the arguments of the answer, of any type.
      ask: returns the data, given the answer's result. For example, it calls a policy for several operations.
      structure: the question's values for the symbols of the task's `ranges`.
    """

    name: str
    arguments: tuple[Any, ...]
    ask: Callable[[Any], Any] = lambda returned: returned
    structure: Structure = field(default_factory=dict, compare=False)

    def data(self, answer: Callable) -> Any:
        """Return the data of an answer, or of the reference."""
        return self.ask(answer(*self.arguments))


class Task(Protocol):
    """The interface of an exercise's `task` module, which contains everything that tracing an answer needs.

    If answers may contain while loops, the module also defines `max_trip_count`: the total number of iterations of all
    while loops in all cases beyond which an answer is treated as endless.

    If answers use several devices, the module also defines `devices`: the number of CPU devices for a learner's page
    that runs outside a notebook. (In a notebook, the first cell sets this number.) Tracing and judging `jax.shard_map`
    need no devices, because a case's `transform` can map over a `jax.sharding.AbstractMesh`.

    Attributes:
      ranges: maps the symbols in the page's table (numbers of layers, sizes, dtypes) to their allowed values. Cases
        cover all of them.
      signature: the answer's signature, as the page spells it, such as `"predict_residuals(op)"`.
      returns: a description of the plain data that an answer returns; missing in other exercises.
      shown: the case whose bytes and FLOPs the verdict shows, with a name that can follow "what that costs"; None if
        answers are plain data.
    """

    ranges: Mapping[str, Integers | OneOf]
    signature: str
    returns: str
    shown: Case | None

    def cases(self, rng: "np.random.Generator") -> Sequence[Case | Question]:
        """Return the cases or questions that test an answer, with random structures and shapes.

        They include both ends of every range, every option, and random values in between. Their order is that of
        findings, simple ones first; answers are traced in a random order. If an answer has both cases and questions, as
        a policy does, cases come first.
        """


def parameters_of(task: Task) -> tuple[str, ...]:
    """Return the names of the arguments in a task's signature, in order."""
    return tuple(re.findall(r"\w+", task.signature)[1:])


class TaskOfAnyStructure(Task, Protocol):
    """A task that can build a case or question of any structure within its ranges. If some combinations of values are
    not allowed, the module also defines `fits`, which returns whether a structure is allowed."""

    def case(self, rng: "np.random.Generator", **structure: Any) -> Case | Question:
        """Return the case or question of a structure, with everything else random."""


class Expect(Protocol):
    """The interface of an exercise's `expect` module, which only the judge may see.

    Attributes:
      mistakes: the known mistakes.
      feedback: the texts of hints, known mistakes and questions, from `feedback.toml`.
    """

    mistakes: Sequence["KnownMistake"]
    feedback: "Feedback"

    def __hash__(self) -> int: ...  # as all modules have one

    def reference(self, *arguments: Any) -> Any:
        """Return the right result. For a case without its own function, this is the result and the named values; for a
        question, it is plain data, a `Choice` or a `CostedAnswer`."""

    def requirements(self, case: Case) -> Sequence[Sequence["Requirement"]]:
        """Return the requirements on the two passes of a case, in groups. The verdict shows all findings of the first
        group that any case violates, and none of later groups. Exercises whose answers are plain data have no
        requirements."""

    def sample_input(self, rng: "np.random.Generator", argument: Any) -> "np.ndarray":
        """Return a random input with an argument's shape and dtype."""

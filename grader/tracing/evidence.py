"""Evidence: what an answer does, as two programs that can be judged without running the answer's code."""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from grader.util import bounded_json

MAX_CHARACTERS = 10_000_000
# Characters of a failure's text; limited because regular expressions (`error_questions`) search it.
_MAX_MESSAGE = 1_000


class EvidenceError(ValueError):
    """Raised if text is not valid evidence; the message gives the reason."""


class FailureKind(StrEnum):
    """The reason why there are no programs of a case."""

    NOT_ATTEMPTED = "not attempted"  # the answer is still the page's stub
    RAISED = "raised"
    RETURNED = "returned"  # the answer returned something without a gradient, or something other than plain data
    CHANGED = "changed"  # the answer behaved differently in the second attempt


RAISES_STUB = "it raises NotImplementedError"
RETURNS_NONE = "Your answer returns None: its return statement is missing or empty."


@dataclass(frozen=True)
class Failure:
    """The reason why there are no programs of a case, with its details.

    Attributes:
      kind: the kind of failure.
      text: the exception's type and message, the returned value, or the difference between the attempts.
      source: the learner's line, or None.
    """

    kind: FailureKind
    text: str
    source: str | None = None

    def attempted(self) -> "Failure":
        """Return the failure as that of an answer that is not a stub."""
        if self.kind is not FailureKind.NOT_ATTEMPTED:
            return self
        if self.text.startswith(RAISES_STUB):
            return replace(self, kind=FailureKind.RAISED, text=self.text.removeprefix("it raises "))
        return replace(self, kind=FailureKind.RETURNED, text=RETURNS_NONE)


@dataclass(frozen=True)
class Traced:
    """The positions of one case's values in the two programs, or the plain data that an answer returned.

    Attributes:
      case: the case's name, or the question's.
      output: the pytree structure of the answer's output as text; `"*"` for a single array.
      outputs: the number of output arrays.
      sources: the learner's line that computed each residual, or None, in the order of the residuals: `forward` returns
        them after the outputs, and `backward` takes them before the cotangents. Untrusted, so they only affect
        feedback.
      undifferentiated: the number of arrays that `forward` returns after the residuals: the outputs of the answer
        without differentiation. 0 if the answer raises in this case.
      data: the data that the answer returned, as JSON's types, if the answer is plain data. The programs are then
        empty.
      failure: the reason why the programs or the data of this case are missing, or None.
    """

    case: str
    output: str = ""
    outputs: int = 0
    sources: tuple[str | None, ...] = ()
    undifferentiated: int = 0
    data: Any = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Evidence:
    """An answer's forward and backward programs for all cases of an exercise.

    Attributes:
      exercise: the exercise's name.
      parameters: the names of the answer's parameters. Untrusted, like `sources`.
      forward: StableHLO text. The program takes every case's arguments and returns every case's outputs, residuals, and
        outputs without differentiation.
      backward: StableHLO text. The program takes every case's residuals and cotangents and returns every case's
        gradients, one per argument. It has no other access to the forward pass.
      cases: the positions of each case's values in both programs, in order.
    """

    exercise: str
    parameters: tuple[str, ...]
    forward: str
    backward: str
    cases: tuple[Traced, ...]

    def attempted(self) -> "Evidence":
        """Return the evidence as that of an answer that is not a stub, whatever the answer's process claims."""
        cases = (replace(traced, failure=traced.failure and traced.failure.attempted()) for traced in self.cases)
        return replace(self, cases=tuple(cases))

    def to_json(self) -> str:
        """Return the evidence as text, which `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Evidence":
        """Read what `to_json` wrote. Raises EvidenceError for anything else, however it is malformed."""
        if len(text) > MAX_CHARACTERS:
            raise EvidenceError(f"the evidence is {len(text):,} characters long; the limit is {MAX_CHARACTERS:,}.")
        try:
            _refuse_no_text(text)
            fields = bounded_json.loads(text)
            cases = tuple(_read_traced_case(case) for case in fields["cases"])
            evidence = cls(**fields | {"parameters": tuple(fields["parameters"]), "cases": cases})
            _refuse_no_text(evidence.exercise, evidence.forward, evidence.backward, *evidence.parameters)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise EvidenceError("the evidence is damaged: it is not what a capture writes.") from error
        return evidence


def _read_traced_case(fields: dict) -> Traced:
    failure = fields["failure"] and Failure(**fields["failure"] | {"kind": FailureKind(fields["failure"]["kind"])})
    traced = Traced(**fields | {"sources": tuple(fields["sources"]), "failure": failure})
    texts = [traced.case, traced.output, *(source for source in traced.sources if source is not None)]
    if failure:
        texts += [failure.text, failure.source or ""]
    short = failure is None or len(failure.text) <= _MAX_MESSAGE
    _refuse_no_text(*texts)
    counts = traced.outputs, traced.undifferentiated
    if not (short and all(type(count) is int and count >= 0 for count in counts)):
        raise ValueError(traced)
    if _nesting_depth(traced.data) > _DEPTH:
        raise ValueError("data in data in data")
    return traced


_DEPTH = 20  # nested lists in data; limited because data is processed recursively


def _refuse_no_text(*values):
    """Raise TypeError for a value that is not a string, and ValueError for a string with an unpaired surrogate."""
    "".join(values).encode()


def _nesting_depth(data: Any) -> int:
    depth, level = 0, [data]
    while level and depth <= _DEPTH:
        depth += 1
        inner = [list(value.values()) if isinstance(value, dict) else value for value in level]
        level = [element for value in inner if isinstance(value, list) for element in value]
    return depth

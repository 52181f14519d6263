"""Evidence: what an answer does, as two programs that can be judged without a line of the answer's code."""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from grader.util import bounded_json

MAX_CHARACTERS = 10_000_000
_MAX_MESSAGE = 1_000  # characters of a failure's text, since regular expressions (`error_questions`) search it


class EvidenceError(ValueError):
    """The evidence is not what capture writes; the message says what is wrong with it."""


class FailureKind(StrEnum):
    """Why a case left no programs."""

    NOT_ATTEMPTED = "not attempted"  # the answer is still the stub that the page came with
    RAISED = "raised"
    RETURNED = "returned"  # something that has no gradient, or no plain data
    CHANGED = "changed"  # the answer did something else when it was tried again


RAISES_STUB = "it raises NotImplementedError"
RETURNS_NONE = "Your answer returns None: its return statement is missing or empty."


@dataclass(frozen=True)
class Failure:
    """What happened in a case that left no programs.

    Attributes:
      kind: what sort of failure.
      text: the exception's type and message, or what was returned, or how one attempt differed from the other.
      source: the learner's line, or None.
    """

    kind: FailureKind
    text: str
    source: str | None = None

    def attempted(self) -> "Failure":
        """Return the failure of an answer that is no stub."""
        if self.kind is not FailureKind.NOT_ATTEMPTED:
            return self
        if self.text.startswith(RAISES_STUB):
            return replace(self, kind=FailureKind.RAISED, text=self.text.removeprefix("it raises "))
        return replace(self, kind=FailureKind.RETURNED, text=RETURNS_NONE)


@dataclass(frozen=True)
class Traced:
    """How one case's values lie in the two programs, or what an answer that is plain data returned.

    Attributes:
      case: the case's name, or the question's.
      output: the structure of what the answer returned, as text, `"*"` for a single array.
      outputs: the number of output arrays.
      sources: for each residual the learner's line that made it, or None, in the order in which forward returns them
        (after the outputs) and backward takes them (before the cotangents). Untrusted: it colours feedback.
      undifferentiated: how many arrays forward returns behind these, which are its outputs where nobody differentiates
        the answer: as many, or none where that can be nothing else.
      data: what the answer returned, in JSON's types, if it is plain data; the programs are empty then.
      failure: why there is nothing of this case in the programs, or no data, or None.
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
      parameters: the names of the answer's parameters, as it spells them. Untrusted, as `sources` are.
      forward: StableHLO text; takes every case's arguments, returns every case's outputs, residuals and
        outputs where nobody differentiates it.
      backward: StableHLO text; takes every case's residuals and cotangents, returns every case's gradients, one for
        each argument. It sees nothing of the forward pass but what that returned.
      cases: how each case's values lie in the two, cases one after the other.
    """

    exercise: str
    parameters: tuple[str, ...]
    forward: str
    backward: str
    cases: tuple[Traced, ...]

    def attempted(self) -> "Evidence":
        """Return the evidence of an answer that is no stub, whatever its process claims."""
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


_DEPTH = 20  # of lists in lists; whatever is done with data goes through it recursively


def _refuse_no_text(*values):
    """Raise TypeError for what is no string, and ValueError for one with half of a pair of characters."""
    "".join(values).encode()


def _nesting_depth(data: Any) -> int:
    depth, level = 0, [data]
    while level and depth <= _DEPTH:
        depth += 1
        inner = [list(value.values()) if isinstance(value, dict) else value for value in level]
        level = [element for value in inner if isinstance(value, list) for element in value]
    return depth

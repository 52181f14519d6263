"""Verdicts: outcomes, the kinds of findings, and findings.

The members of the enums are strings, which JSON, SQLite, `grades.csv` and pages contain. Unused members must stay,
because a learner's saved progress may contain them. `views` displays verdicts.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rematscope.render import View, plain_text


class Outcome(StrEnum):
    """The outcome of checking one answer."""

    PASSED = "passed"
    NOT_PASSED = "not passed"
    NOT_ATTEMPTED = "not attempted"
    NOT_JUDGED = "could not be judged"


HEADLINE = {
    Outcome.PASSED: "Passed",
    Outcome.NOT_PASSED: "Not passed yet",
    Outcome.NOT_ATTEMPTED: "Not attempted",
    Outcome.NOT_JUDGED: "Not judged",
}


class FindingKind(StrEnum):
    """The subject of a finding. Hints name the kinds that they help with (`Hint.on_kinds`)."""

    # There is no answer, or it could not be judged.
    NOT_ATTEMPTED = "not attempted"
    NOT_JUDGED = "could not be judged"
    MACHINE = "machine"  # a process was killed from outside, within its limits: this is not the answer's fault
    ANOTHER_EXERCISE = "another exercise"  # the file answers another exercise than the given one
    REPLACED = "replaced definition"  # advice: the answer is defined more than once, and only one definition counts

    # Results.
    DOES_NOT_RUN = "does not run"  # a name is missing, or the answer's cell raises; this does not count as an attempt
    RAISES = "raises"
    CHANGES = "changes from call to call"
    ARGUMENT_ORDER = "argument order"
    DOES_NOT_END = "does not end"
    WRONG_TYPE = "wrong type"
    WRONG_VALUE = "wrong value"
    WRONG_GRADIENT = "wrong gradient"

    # Residuals, recompute, memory and communication.
    EXTRA_RESIDUAL = "also saved"
    MISSING_RESIDUAL = "not saved"
    WRONG_MEMORY = "wrong memory"
    RECOMPUTES = "recomputes"
    EXTRA_MATMULS = "extra matmuls"
    PEAK = "peak"
    LINK_BYTES = "link bytes"
    GATHERS = "gathers"  # a whole array on each device, by a sharding constraint
    NO_BARRIER = "no barrier"

    # Answers that are plain data.
    UNKNOWN_NAME = "unknown name"
    IMPOSSIBLE = "impossible"
    COSTS_MORE = "costs more"


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
      kind: the kind of finding.
      text: one or two sentences for the learner.
      expected: the right value or behavior, in words, or None.
      got: the answer's value or behavior, in words, or None.
      nbytes: the bytes that the finding is about, or None.
      flops: the FLOPs that the finding is about, or None.
      source: the learner's line, such as `"In [3], line 7"`, or None. It comes from the answer's own trace, so it never
        affects the outcome.
      next: the next step for the learner, a question, or None.
      cases: the names of the cases that show it; the figures are those of the first case.
      advice: True if the finding comes with a pass and does not prevent it.
      marked: the positions of the residuals that it is about, in the first case.
      programs: the answer's two programs in that case, as a `rematscope` view with those residuals marked, or as its
        text; None if they would not explain the finding.
      includes: the kinds of other findings with the same cause, which this one reports too. Hints for those kinds fit
        this finding as well.
    """

    kind: FindingKind
    text: str
    expected: str | None = None
    got: str | None = None
    nbytes: int | None = None
    flops: int | None = None
    source: str | None = None
    next: str | None = None
    cases: tuple[str, ...] = ()
    advice: bool = False
    marked: tuple[int, ...] = ()
    programs: View | str | None = None
    includes: tuple[FindingKind, ...] = ()

    @property
    def kinds(self) -> set[FindingKind]:
        """The finding's own kind and the kinds that it includes."""
        return {self.kind, *self.includes}

    def details(self) -> list[tuple[str, str]]:
        """Return the finding's details other than its text as (label, words) pairs, in the order in which they are
        shown."""
        rows = [
            ("expected", self.expected),
            ("yours", self.got),
            ("in your code", self.source),
            ("applies to" if self.advice else "fails for", list_cases(self.cases) or None),
            ("next", self.next),
        ]
        return [(label, words) for label, words in rows if words is not None]


_MOST_CASES = 3  # the number of cases that are listed by name; progress and JSON contain all of them


def list_cases(cases: Sequence[str]) -> str:
    """Return the names of cases in one line. If there are many, list the first few and the number of the others."""
    more = len(cases) - _MOST_CASES
    if more < 2:  # " and 1 more case" is not shorter than most names
        return "; ".join(cases)
    return f"{'; '.join(cases[:_MOST_CASES])}; and {more} more cases"


@dataclass(frozen=True)
class Effect:
    """The costs of one answer to an exercise, for the shapes of its page or of a failing case.

    Attributes:
      label: which answer, such as `"your answer"`.
      saved_bytes: bytes of the computed residuals on the device; arguments and constants are in memory anyway.
      recomputed_flops: FLOPs that the backward pass spends on recompute.
      host_bytes: bytes of the residuals in host memory.
    """

    label: str
    saved_bytes: int
    recomputed_flops: int
    host_bytes: int = 0


@dataclass(frozen=True, repr=False)
class Verdict:
    """The outcome of checking one answer.

    Attributes:
      exercise: the exercise's name.
      outcome: the outcome.
      findings: the findings, the most informative first, then advice.
      shown: sentences on what the answer saves and recomputes; empty unless it passed.
      evidence: SHA-256 of the judged evidence, or None if there was nothing to judge.
      effects: the costs of the answer and of other answers; empty if unknown.
      scene: the case in which these costs arise, in words that follow "Cost".
      residuals: the answer's residuals for the page's shapes, a `rematscope.ResidualTable` or its text, or None.
    """

    exercise: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    shown: tuple[str, ...] = ()
    evidence: str | None = None
    effects: tuple[Effect, ...] = ()
    scene: str = ""
    residuals: View | str | None = None

    @property
    def passed(self) -> bool:
        """Whether the answer passed."""
        return self.outcome == Outcome.PASSED

    @property
    def ran(self) -> bool:
        """Whether the answer ran, so that hints about its results apply to it."""
        return self.outcome in (Outcome.PASSED, Outcome.NOT_PASSED) and not any(
            finding.kind is FindingKind.DOES_NOT_RUN for finding in self.findings
        )

    def without_programs(self) -> "Verdict":
        """Return the verdict without the programs of its findings."""
        return dataclasses.replace(
            self, findings=tuple(dataclasses.replace(finding, programs=None) for finding in self.findings)
        )

    def __repr__(self) -> str:
        lines = [f"{HEADLINE[self.outcome]}: {self.exercise}", *(f"  {sentence}" for sentence in self.shown)]
        for number, finding in enumerate(self.findings, 1):
            lines.append(f"  {'Advice:' if finding.advice else f'{number}.'} {finding.text}")
            lines += (f"     {label}: {words}" for label, words in finding.details())
        return "\n".join(lines)

    def to_dict(self) -> dict:
        """Return the verdict as JSON's types. Views become text with 80 columns."""
        findings = tuple(
            dataclasses.replace(finding, programs=_view_text(finding.programs)) for finding in self.findings
        )
        return dataclasses.asdict(dataclasses.replace(self, findings=findings, residuals=_view_text(self.residuals)))

    @classmethod
    def from_dict(cls, fields: dict) -> "Verdict":
        """Return the verdict from the result of `to_dict`. Raises TypeError, KeyError or ValueError if it is not
        valid."""
        parts = {
            "outcome": Outcome(fields["outcome"]),
            "findings": tuple(map(_read_finding, fields["findings"])),
            "shown": tuple(fields["shown"]),
            "effects": tuple(Effect(**effect) for effect in fields["effects"]),
        }
        return cls(**fields | parts)


def not_judged(exercise: str | None, text: str, question: str | None = None) -> Verdict:
    """Return the verdict on an answer that could not be judged, with the reason and a question for the learner."""
    return Verdict(exercise or "", Outcome.NOT_JUDGED, (Finding(FindingKind.NOT_JUDGED, text, next=question),))


def better(first: Verdict, second: Verdict) -> Verdict:
    """Return the better of two verdicts on an answer that was tried twice; the first one if they are equally good."""
    return max(first, second, key=_merit_of)


def _merit_of(verdict: Verdict) -> tuple[bool, bool, bool]:
    raises = any(finding.kind in (FindingKind.DOES_NOT_RUN, FindingKind.RAISES) for finding in verdict.findings)
    return verdict.passed, verdict.outcome == Outcome.NOT_PASSED, not raises


def _view_text(view: View | str | None) -> str | None:
    return view if view is None or isinstance(view, str) else plain_text(view, 80)


def _read_finding(fields: dict) -> Finding:
    parts = {
        "kind": FindingKind(fields["kind"]),
        "cases": tuple(fields["cases"]),
        "marked": tuple(fields["marked"]),
        "includes": tuple(map(FindingKind, fields.get("includes", ()))),  # older progress does not contain this field
    }
    return Finding(**fields | parts)

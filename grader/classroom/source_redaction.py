"""Replace a learner's source lines in evidence before it is judged, and restore them in the verdict.

These lines come from the answer's process and must not affect the verdict. Without them, answers with identical
programs have identical evidence, which is judged only once in a class.
"""

import dataclasses
import hashlib

from grader.tracing.evidence import Evidence, EvidenceError, Traced
from grader.verdicts.verdict import Verdict


def redact_lines(evidence: Evidence) -> Evidence:
    """Return the evidence with marks in place of the learner's lines. The result contains everything that affects the
    verdict. Raises EvidenceError if a line looks like a mark."""
    # Python source cannot contain this character.
    if any("\0" in (line or "") for case in evidence.cases for line in _learner_lines(case)):
        raise EvidenceError("the evidence is damaged: it is not what a capture writes.")
    cases = [
        dataclasses.replace(traced, sources=tuple(f"\0{case}:{place}" for place in range(len(traced.sources))))
        for case, traced in enumerate(evidence.cases)
    ]
    return dataclasses.replace(evidence, cases=tuple(cases))


def restore_lines(verdict: Verdict, evidence: Evidence, text: str) -> Verdict:
    """Return the verdict on redacted evidence with the lines of the original evidence."""

    def lines(source: str | None) -> str | None:
        if source is None or not source.startswith("\0"):
            return source
        places = (map(int, mark.removeprefix("\0").split(":")) for mark in source.split("; "))
        named = (evidence.cases[case].sources[place] for case, place in places)
        return "; ".join(dict.fromkeys(line for line in named if line)) or None

    findings = (dataclasses.replace(finding, source=lines(finding.source)) for finding in verdict.findings)
    judged = hashlib.sha256(text.encode()).hexdigest()
    return dataclasses.replace(verdict, findings=tuple(findings), evidence=judged)


def _learner_lines(case: Traced) -> tuple[str | None, ...]:
    return case.sources if case.failure is None else (*case.sources, case.failure.source)

"""Findings about cases in which the answer raised, or returned what has no gradient."""

from collections.abc import Iterator

from grader.answers.evidence import Evidence, FailureKind
from grader.exercises.spec import Expect, Task
from grader.judging.group_findings import CaseFinding
from grader.verdicts.error_questions import OTHERWISE, about_exception, about_return
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding

_MEMORY_QUESTION = (
    "What does your answer remember from one call to the next: a growing list, an exhausted generator, a counter?"
)


def failures(evidence: Evidence, task: Task, expect: Expect) -> Iterator[CaseFinding]:
    """What went wrong in the cases that left no programs."""
    questions = expect.feedback.error_questions
    failed = [(traced, traced.failure) for traced in evidence.cases if traced.failure]
    # First what has a memory: it says why other cases failed.
    for traced, failure in sorted(failed, key=lambda each: each[1].kind is not FailureKind.CHANGED):
        if failure.kind is FailureKind.CHANGED:
            kind = FindingKind.CHANGES
            text = f"Your answer changes from call to call: {failure.text}."
            question: str | None = _MEMORY_QUESTION
        elif failure.kind is FailureKind.RETURNED:
            kind, text = FindingKind.WRONG_TYPE, failure.text
            question = about_return(failure.text, questions) or f"What should {task.signature} return?"
        else:
            kind, text = FindingKind.RAISES, f"Your answer raises {failure.text}"
            question = about_exception(failure.text, failure.source, questions)
            question = question or OTHERWISE
        # A message has the case's shapes in it; the exception's type and the line are the same in every case.
        key = failure.kind, failure.text.split(":")[0], failure.source
        yield CaseFinding(key, traced.case, Finding(kind, text, source=failure.source, next=question))

"""Findings about cases in which the answer raised, or returned what has no gradient."""

import re
from collections.abc import Iterator, Sequence

from grader.answers.evidence import Evidence, FailureKind
from grader.exercises.spec import Expect, Task
from grader.judging.merge import Seen
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding

# After an exercise's own `error_questions`, which know its functions: patterns of messages, and what to ask.
_ERROR_QUESTIONS = (
    (r"^NameError|^UnboundLocalError", "Is that name spelled right, and is it imported or defined above?"),
    (r"^AttributeError|^ImportError", "Is that name spelled right, and is it where you look for it?"),
    (r"^KeyError", "Is that key there every time that line runs? What does it run for when the key is missing?"),
    (
        r"positional argument|unexpected keyword|multiple values",
        "Which arguments does that function take, and which is it given?",
    ),
    (r"unhashable", "Which value there is a list or a dict, where one is wanted that cannot change, such as a string?"),
    (r"not callable|Expected a callable", "Which value there is called as a function, and what is it really?"),
)

_MEMORY_QUESTION = (
    "What does your answer keep from one call to the next: a list that grows, a generator that is empty, a counter?"
)


def failures(evidence: Evidence, task: Task, expect: Expect) -> Iterator[Seen]:
    """What went wrong in the cases that left no programs."""
    failed = [(traced, traced.failure) for traced in evidence.cases if traced.failure]
    # First what has a memory: it says why other cases failed.
    for traced, failure in sorted(failed, key=lambda each: each[1].kind is not FailureKind.CHANGED):
        if failure.kind is FailureKind.CHANGED:
            kind, text = (
                FindingKind.CHANGES,
                f"Your answer does not do the same each time that it is tried: {failure.text}.",
            )
            questions: Sequence[tuple[str, str]] = ()
            default = _MEMORY_QUESTION
        elif failure.kind is FailureKind.RETURNED:
            kind, text = FindingKind.WRONG_TYPE, failure.text
            questions = expect.error_questions
            default = f"What should {task.signature} return?"
        else:
            kind, text = FindingKind.RAISES, f"Your answer raises {failure.text}"
            questions = (*expect.error_questions, *_ERROR_QUESTIONS)
            default = "What are the shapes and types of the values in that line?"
        question = next((question for pattern, question in questions if re.search(pattern, failure.text)), default)
        # A message has the case's shapes in it; the exception's type and the line are the same in every case.
        key = failure.kind, failure.text.split(":")[0], failure.source
        yield Seen(key, traced.case, Finding(kind, text, source=failure.source, next=question))

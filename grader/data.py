"""Answers that are plain data: what they return, in JSON's types, compared with the reference's."""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from grader.evidence import Evidence
from grader.exercise import Question
from grader.verdict import Finding


def plain(value: Any) -> Any:
    """A value in JSON's types. Raises TypeError, with the type's name, for what is no plain data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number that came from an array
        return plain(value.item())
    raise TypeError(type(value).__name__)


def differences(
    evidence: Evidence, questions: Sequence[Question], task: ModuleType, expect: ModuleType
) -> Iterator[tuple[object, str, Finding]]:
    """What an answer got wrong: a key that is the same for the same mistake, the question's name, the finding."""
    for asked, question in zip(evidence.cases, questions, strict=True):
        want = expect.reference(*question.arguments)
        got = asked.data
        if got == plain(want):
            continue
        words = {"expected": _shown(plain(want), want), "got": _shown(got, want)}
        if not _fits(got, want):
            text = f"Your answer returns {words['got']} where {task.returns} is asked for."
            yield (
                "type",
                question.name,
                Finding("wrong type", text, **words, next=f"What should {task.signature} return?"),
            )
            continue
        same = (m for m in expect.mistakes if plain(m.function(*question.arguments)) == got)
        mistake = next(same, None)
        text = f"Your answer is not what JAX does{f': {mistake.says}' if mistake else ''}."
        ask = mistake.next if mistake else "What does rematscope's residual_table show for something of this kind?"
        yield mistake and mistake.says, question.name, Finding("wrong value", text, **words, next=ask)


def _fits(got, want) -> bool:
    """Whether data has the form of what is wanted: a tuple's length is fixed, a list's is not."""
    match want:
        case tuple():
            return isinstance(got, list) and len(got) == len(want) and all(map(_fits, got, want))
        case list():
            return isinstance(got, list) and (not want or all(_fits(element, want[0]) for element in got))
    return type(got) is type(plain(want))


def _shown(data, like) -> str:
    return str(tuple(data) if isinstance(data, list) and isinstance(like, tuple) else data)

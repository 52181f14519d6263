"""What an answer that is plain data got wrong: what it returned, in JSON's types, beside what the reference returns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from grader.answers.evidence import Evidence
from grader.exercises.plain_data import Choice, CostedAnswer, Impossible, plain
from grader.exercises.spec import Expect, Question, Task
from grader.judging.merge import Seen
from grader.stablehlo.types import ProgramError
from grader.verdicts.kinds import FindingKind
from grader.verdicts.verdict import Finding


def differences(evidence: Evidence, questions: Sequence[Question], task: Task, expect: Expect) -> Iterator[Seen]:
    """What an answer that is plain data got wrong, question by question.

    Args:
      evidence: what the answer returned.
      questions: what it was asked.
      task: the exercise's `task` module.
      expect: its `expect` module, whose `reference` returns what is right, a `Choice`, or a `CostedAnswer`.

    Raises:
      ProgramError: the evidence is not about these questions.
    """
    if [asked.case for asked in evidence.cases] != [question.name for question in questions]:
        raise ProgramError("it does not answer this exercise's questions.")
    costed = []
    for asked, question in zip(evidence.cases, questions, strict=True):
        want = expect.reference(*question.arguments)
        if isinstance(want, CostedAnswer):
            costed.append((question, want, _carried_out(asked.data, want, question, task)))
        else:
            yield from _differs(asked.data, want, question, task, expect)
    yield from _too_costly(costed, task, expect)


def _differs(got: Any, want: Any, question: Question, task: Task, expect: Expect) -> Iterator[Seen]:
    chosen = isinstance(want, Choice)
    expected = f"{len(want.chosen)} of the page's names" if chosen else _shown(plain(want), want)
    given = _shown(got, want)
    if not _fits(got, want):
        yield _wrong_type(question, task, expected, given)
        return
    if chosen and (unknown := _unknown(got, want)):
        text = f"{unknown!r} is none of the names on the page."
        ask = "Which of the page's names means the same value?"
        yield Seen("unknown", question.name, Finding(FindingKind.UNKNOWN_NAME, text, got=given, next=ask))
        return
    compared = _comparable(got, want)
    if compared == _comparable(plain(want), want):
        return
    same = (m for m in expect.mistakes if _comparable(plain(m.function(*question.arguments)), want) == compared)
    mistake = next(same, None)
    says = mistake.says if mistake else _how_many(compared, want) if chosen else None
    text = f"Your answer is not what JAX does{f': {says}' if says else ''}."
    ask = mistake.next if mistake else expect.otherwise
    # With counts in the key, findings are merged only for questions that have the same counts.
    key = (says, expected, given) if chosen and not mistake else says
    yield Seen(key, question.name, Finding(FindingKind.WRONG_VALUE, text, expected=expected, got=given, next=ask))


def _carried_out(got: Any, want: CostedAnswer, question: Question, task: Task) -> int | Seen:
    """What an answer costs; or, of one that cannot be carried out, what is to be said."""
    if not isinstance(got, list):
        return _wrong_type(question, task, task.returns, _shown(got, got))
    try:
        return want.cost(got)
    except Impossible as error:
        text, ask = error.args
        text = f"Your {want.what}{_for_numbers(question, task)} cannot be carried out: {text}"
        return Seen(ask, question.name, Finding(FindingKind.IMPOSSIBLE, text, next=ask))


def _too_costly(
    costed: Sequence[tuple[Question, CostedAnswer, int | Seen]], task: Task, expect: Expect
) -> Iterator[Seen]:
    over = [(question, cost) for question, want, cost in costed if isinstance(cost, int) and cost > want.least]
    # By chance a mistake costs as much as another one. Which it is shows if only one fits wherever too much is spent.
    same = {m.says: m for m in expect.mistakes if all(m.function(*q.arguments) == cost for q, cost in over)}
    mistake = next(iter(same.values())) if len(same) == 1 else None
    for question, want, cost in costed:
        if not isinstance(cost, int):
            yield cost
        elif cost > want.least:
            text = f"Your {want.what}{_for_numbers(question, task)} takes more {want.unit} than it has to"
            finding = Finding(
                FindingKind.COSTS_MORE,
                f"{text}: {mistake.says}." if mistake else f"{text}.",
                expected=f"{want.least} {want.unit}",
                got=f"{cost} {want.unit}",
                next=mistake.next if mistake else expect.otherwise,
            )
            yield Seen("costs more", question.name, finding)


def _for_numbers(question: Question, task: Task) -> str:
    """The numbers that an answer was asked for, in words, so that it can be tried with the same ones."""
    named = zip(task.parameters, question.arguments, strict=True)
    numbers = [f"{name} = {value}" for name, value in named if isinstance(value, int)]
    return f" for {' and '.join(numbers)}" if numbers else ""


def _wrong_type(question: Question, task: Task, expected: str, got: str) -> Seen:
    text = f"Your answer returns {got} where {task.returns} is asked for."
    finding = Finding(
        FindingKind.WRONG_TYPE, text, expected=expected, got=got, next=f"What should {task.signature} return?"
    )
    return Seen("type", question.name, finding)


def _comparable(data: Any, want: Any) -> Any:
    """Data as it is compared: names that are chosen come in any order, with or without spaces."""
    if isinstance(want, Choice) and isinstance(data, list) and all(isinstance(name, str) for name in data):
        return sorted("".join(name.split()) for name in data)
    return data


def _how_many(given: list[str], want: Choice) -> str:
    """How many of the given names are right, in words."""
    kept = sum((Counter(given) & Counter(_comparable(list(want.chosen), want))).values())
    if len(given) == 1:
        return "that is kept, but not alone" if kept else "that is not kept"
    return f"of these {len(given)} names, {kept or 'none'} {'is' if kept <= 1 else 'are'} kept"


def _unknown(got: list[str], want: Choice) -> str | None:
    known = _comparable(list(want.among), want)
    return next((name for name in got if "".join(name.split()) not in known), None)


def _fits(got: Any, want: Any) -> bool:
    """Whether data has the form of what is wanted: a tuple's length is fixed, a list's is not."""
    match want:
        case Choice():
            return _fits(got, [""])
        case tuple():
            return isinstance(got, list) and len(got) == len(want) and all(map(_fits, got, want))
        case list():
            return isinstance(got, list) and (not want or all(_fits(element, want[0]) for element in got))
        case dict():
            return (
                isinstance(got, dict) and got.keys() == want.keys() and all(_fits(got[key], want[key]) for key in want)
            )
    return type(got) is type(plain(want))


def _shown(data: Any, like: Any) -> str:
    """Data in words that can be written to a file: half of a pair of characters, which JSON has, is no UTF-8."""
    return str(_spelled(data, like)).encode(errors="backslashreplace").decode()


def _spelled(data: Any, like: Any) -> Any:
    """Data as Python spells it: JSON has no tuples."""
    if isinstance(data, list) and isinstance(like, tuple):
        return tuple(data)
    if isinstance(data, dict) and isinstance(like, dict):
        return {key: _spelled(element, like.get(key)) for key, element in data.items()}
    return data

"""Find errors in an answer that is plain data, by comparing it with the reference's data."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from grader.exercises.feedback import KnownMistake
from grader.exercises.spec import Choice, CostedAnswer, Expect, Impossible, Question, Task, parameters_of, plain
from grader.judging.findings import CaseFinding
from grader.stablehlo.types import ProgramError
from grader.tracing.evidence import Evidence
from grader.util.words import counted
from grader.verdicts.verdict import Finding, FindingKind
from rematscope.render import joined


def differences(evidence: Evidence, questions: Sequence[Question], task: Task, expect: Expect) -> Iterator[CaseFinding]:
    """Yield findings about an answer that is plain data, by question.

    Args:
      evidence: the evidence with the answer's data.
      questions: the questions.
      task: the exercise's `task` module.
      expect: its `expect` module, whose `reference` returns the right data, a `Choice` or a `CostedAnswer`.

    Raises:
      ProgramError: if the evidence is not for these questions.
    """
    if [asked.case for asked in evidence.cases] != [question.name for question in questions]:
        raise ProgramError("it does not answer this exercise's questions.")
    answers = [
        _Answer(question, asked.data, question.data(expect.reference))
        for asked, question in zip(evidence.cases, questions, strict=True)
    ]
    if isinstance(answers[0].want, CostedAnswer):
        yield from _too_costly(answers, task, expect)
    else:
        yield from _different_answers(answers, task, expect)


class _Answer(NamedTuple):
    """The answer's data for a question, as JSON's types, and the reference's result."""

    question: Question
    got: Any
    want: Any

    def is_of(self, data: Any) -> bool:
        """Return whether the answer equals data of the reference or of a mistake. The values of a mapping may be slow
        to compute."""
        if isinstance(data, Mapping):
            alike = isinstance(self.got, dict) and self.got.keys() == data.keys()
            return alike and all(self.got[key] == plain(data[key]) for key in data)
        return bool(_normalize_names(self.got, self.want) == _normalize_names(plain(data), self.want))


def _different_answers(answers: Sequence[_Answer], task: Task, expect: Expect) -> Iterator[CaseFinding]:
    misfits = {answer.question.name: misfit for answer in answers if (misfit := _wrong_form(answer, task))}
    wrong = [answer for answer in answers if answer.question.name not in misfits and not answer.is_of(answer.want)]
    if task.shown is None:
        right = [answer for answer in answers if answer.is_of(answer.want)]
        explained = _explain_by_mistake(wrong, right, expect.mistakes, credible=len(answers) // _CHANCE)
        behind = {explained.get(answer.question.name) for answer in wrong}
        if wrong and isinstance(wrong[0].want, dict) and (len(behind) > 1 or None in behind):
            explained = _explain_parts(wrong, expect)  # of all wrong answers, in the order to show them in
        if not explained and (where := _describe_shared_property(wrong, right)):
            mistake = KnownMistake(where, expect.reference, expect.feedback.otherwise)
            explained = dict.fromkeys((answer.question.name for answer in wrong), mistake)
    else:
        # An answer that is also differentiated is a policy. Each question has only a few possible results, so many
        # mistakes agree with a result by chance. Only a mistake that agrees with all results counts.
        alike = [m for m in expect.mistakes if all(_is_mistake(answer, m) for answer in answers)]
        explained = _explain_by_mistake(wrong, [], alike[:1], credible=0)
    # A finding shows the figures of its first question, so the order of `explained` decides between the questions.
    order = {name: place for place, name in enumerate(explained)}
    for answer in sorted(answers, key=lambda answer: order.get(answer.question.name, len(order))):
        if misfit := misfits.get(answer.question.name):
            yield misfit
        elif not answer.is_of(answer.want):
            yield _difference_finding(answer, explained.get(answer.question.name), expect)


def _wrong_form(answer: _Answer, task: Task) -> CaseFinding | None:
    """Return the finding about data of the wrong form, or with a name that the page does not have."""
    question, got, want = answer
    if not _has_form(got, want):
        return _wrong_type_finding(question, task, _expected_text(want), _returned_text(got, want))
    if isinstance(want, Choice) and (unknown := _unknown_name(got, want)):
        text = f"{unknown!r} is not one of the names on the page."
        ask = "Which name on the page stands for that value?"
        finding = Finding(FindingKind.UNKNOWN_NAME, text, got=_printable_text(got, want), next=ask)
        return CaseFinding("unknown", question.name, finding)
    return None


def _expected_text(want: Any) -> str:
    return (
        f"{counted(len(want.chosen), 'names') if want.chosen else 'no name'} from the page"
        if isinstance(want, Choice)
        else _printable_text(plain(want), want)
    )


def _difference_finding(answer: _Answer, mistake: KnownMistake | None, expect: Expect) -> CaseFinding:
    question, got, want = answer
    chosen = isinstance(want, Choice)
    expected, given = _expected_text(want), _printable_text(got, want)
    says = mistake.description if mistake else _count_right_names(_normalize_names(got, want), want) if chosen else None
    text = f"Your answer differs from {expect.feedback.compared_with}{f': {says}' if says else ''}."
    ask = mistake.hint if mistake else expect.feedback.otherwise
    # With counts in the key, findings are merged only for questions that have the same counts.
    key = (says, expected, given) if chosen and not mistake else says
    return CaseFinding(
        key, question.name, Finding(FindingKind.WRONG_VALUE, text, expected=expected, got=given, next=ask)
    )


_CHANCE = 10  # a mistake that fits less than 1 in 10 questions fits by chance
_COMPARED = 8  # the number of right answers that decide between mistakes that explain equally many wrong ones
# The number of wrong answers for which all mistakes are tried first, because a mistake's function may be slow.
_LOOKED_AT = 4


def _explain_by_mistake(
    wrong: Sequence[_Answer], right: Sequence[_Answer], mistakes: Sequence[KnownMistake], credible: int
) -> dict[str, KnownMistake]:
    """Return the known mistake that explains each wrong answer, if there is one, by the question's name.

    For small numbers, different mistakes often give the same result. The mistake that explains the most wrong answers
    is chosen; among equals, the one that also gives the most right answers. A mistake that explains fewer than
    `credible` answers is ignored.
    """
    explained: dict[str, KnownMistake] = {}
    while wrong:
        few = wrong[:: -(-len(wrong) // _LOOKED_AT)]
        likely = [mistake for mistake in mistakes if any(_is_mistake(answer, mistake) for answer in few)]
        if not likely:
            break
        alike = {mistake: [answer for answer in wrong if _is_mistake(answer, mistake)] for mistake in likely}
        most = max(map(len, alike.values()))
        if most < credible:
            break
        best = [mistake for mistake in likely if len(alike[mistake]) == most]
        if len(best) > 1:
            several = right[:: -(-len(right) // _COMPARED) or 1]
            best.sort(key=lambda mistake: -sum(_is_mistake(answer, mistake) for answer in several))
        mistake = best[0]
        explained |= {answer.question.name: mistake for answer in alike[mistake]}
        wrong = [answer for answer in wrong if answer.question.name not in explained]
    return explained


def _explain_parts(wrong: Sequence[_Answer], expect: Expect) -> dict[str, KnownMistake]:
    """Return texts about dicts that no single mistake explains, by the question's name. A text says which entries are
    right for every question, and how the other entries are wrong.

    The questions are in the order in which findings must show them: all entries that a text says are wrong differ in
    the first question with this text. If no question shows all wrong entries, there are several texts.
    """
    wants = {answer.question.name: plain(answer.want) for answer in wrong}
    keys = wants[wrong[0].question.name].keys()
    differing = {a.question.name: {key for key in keys if a.got[key] != wants[a.question.name][key]} for a in wrong}
    right = [f"the entry {key!r} is right" for key in keys if not any(key in each for each in differing.values())]
    explained: dict[str, KnownMistake] = {}
    while left := [answer for answer in wrong if answer.question.name not in explained]:
        shown = max(left, key=lambda answer: len(differing[answer.question.name]))
        entries = differing[shown.question.name]
        alike = [answer for answer in left if differing[answer.question.name] <= entries]
        texts, asks = _explain_entries([key for key in keys if key in entries], alike, expect)
        text = "; ".join([*texts, *right])
        mistake = KnownMistake(text, expect.reference, asks[0] if asks else expect.feedback.otherwise)
        # `shown` comes first; the other questions keep their order.
        explained |= {answer.question.name: mistake for answer in (shown, *alike)}
    return explained


def _explain_entries(keys: Sequence[str], wrong: Sequence[_Answer], expect: Expect) -> tuple[list[str], list[str]]:
    """Return a text for each way in which entries of dicts are wrong, and the questions of the mistakes behind them.

    A text names the known mistake that explains its entries, preferably one that explains the most entries.
    """
    behind: dict[str, list[KnownMistake]] = {key: [] for key in keys}
    for mistake in expect.mistakes:
        leads_to = [answer.question.data(mistake.wrong_reference) for answer in wrong]
        for key, found in behind.items():
            if all(a.got[key] == plain(data[key]) for a, data in zip(wrong, leads_to, strict=True)):
                found.append(mistake)
    texts: dict[str, list[str]] = {}
    asks = []
    for key, found in behind.items():
        best = max(found, key=lambda m: sum(m in others for others in behind.values()), default=None)
        says = best.description if best else _describe_error(wrong, key)
        texts.setdefault(says, []).append(repr(key))
        asks += [best.hint] if best else []
    return [f"under {' and '.join(which)}, {says}" for says, which in texts.items()], asks


_BY_CHANCE = 5  # fewer questions may have a property in common by chance


def _describe_shared_property(wrong: Sequence[_Answer], right: Sequence[_Answer]) -> str | None:
    """Return a property, in words, that all wrongly answered questions or all rightly answered ones share, and hardly
    any others."""
    if min(len(wrong), len(right)) < _BY_CHANCE or isinstance(wrong[0].want, Choice):
        return None
    for symbol in wrong[0].question.structure:
        of_wrong, of_right = ([answer.question.structure[symbol] for answer in each] for each in (wrong, right))
        there, elsewhere = set(of_wrong), set(of_right)
        if len(there) == 1 and sum(value in there for value in of_right) < len(right) / 2:
            return f"it is wrong only for {symbol} = {there.pop()!r}"
        if there & elsewhere:
            continue
        if len(elsewhere) == 1:
            return f"it is right only for {symbol} = {elsewhere.pop()!r}"
        if all(isinstance(value, str) for value in there):
            return f"it is wrong only for {symbol} = {' or '.join(map(repr, sorted(there)))}"
        if max(there) < min(elsewhere):
            return f"it is wrong only for {symbol} ≤ {max(there)}"
        if min(there) > max(elsewhere):
            return f"it is wrong only for {symbol} ≥ {min(there)}"
    return None


def _describe_error(wrong: Sequence[_Answer], key: str) -> str:
    """Return in words how the numbers under a key are wrong, if no known mistake explains them."""
    pairs = [pair for a in wrong for pair in zip(*map(np.ravel, (a.got[key], a.want[key])), strict=False)]
    if all(got >= want for got, want in pairs):
        return "the numbers are too large"
    return "the numbers are too small" if all(got <= want for got, want in pairs) else "the numbers are wrong"


def _is_mistake(answer: _Answer, mistake: KnownMistake) -> bool:
    return answer.is_of(answer.question.data(mistake.wrong_reference))


def _too_costly(answers: Sequence[_Answer], task: Task, expect: Expect) -> Iterator[CaseFinding]:
    """Yield findings about answers that are judged by cost: they break a rule or cost more than the best answer."""
    costs = [_compute_cost(answer, task) for answer in answers]
    over = [(a, cost) for a, cost in zip(answers, costs, strict=True) if isinstance(cost, int) and cost > a.want.least]
    mistake = _find_mistake_of_costs(over, expect) if len(over) >= len(answers) // _CHANCE else None
    behind = _find_mistakes_of_impossible([cost for cost in costs if isinstance(cost, Impossible)])
    for answer, cost in zip(answers, costs, strict=True):
        if isinstance(cost, CaseFinding):
            yield cost
        elif isinstance(cost, Impossible):
            yield _impossible_finding(answer, cost, behind.get(cost), task)
        elif cost > answer.want.least:
            want = answer.want
            text = f"Your {want.what}{_numbers_text(answer.question, task)} needs more {want.unit} than necessary"
            finding = Finding(
                FindingKind.COSTS_MORE,
                f"{text}: {mistake.description}." if mistake else f"{text}.",
                expected=_cost_text(want.least, want.unit),
                got=_cost_text(cost, want.unit),
                next=mistake.hint if mistake else expect.feedback.otherwise,
            )
            yield CaseFinding("costs more", answer.question.name, finding)


def _compute_cost(answer: _Answer, task: Task) -> int | CaseFinding | Impossible:
    """Return the cost of an answer, or why it has none: its form is wrong, or it breaks a rule."""
    question, got, want = answer
    if not isinstance(got, list):
        return _wrong_type_finding(question, task, task.returns, _returned_text(got, got))
    try:
        cost: int = want.cost(got)
        return cost
    except Impossible as error:
        return error


def _impossible_finding(answer: _Answer, error: Impossible, mistake: KnownMistake | None, task: Task) -> CaseFinding:
    question, _, want = answer
    says, ask = (error.text, error.ask)
    if mistake:
        says, ask = f"{says.removesuffix('.')}: {mistake.description}.", mistake.hint
    text = f"Your {want.what}{_numbers_text(question, task)} {error.what}: {says}"
    return CaseFinding(ask, question.name, Finding(FindingKind.IMPOSSIBLE, text, next=ask))


def _find_mistakes_of_impossible(errors: Sequence[Impossible]) -> dict[Impossible, KnownMistake]:
    """Return the known mistake behind each wrong number.

    For some sizes, several mistakes lead to the same number. Then it is the mistake that explains most of the wrong
    numbers. A mistake that explains only a few of them fits by chance and is not named.
    """
    explained: dict[Impossible, KnownMistake] = {}
    for ask in dict.fromkeys(error.ask for error in errors):
        alike = [error for error in errors if error.ask == ask]
        left = [error for error in alike if error.mistakes]
        while left:
            counts = Counter(says for error in left for says in {mistake.description for mistake in error.mistakes})
            most = max(counts.values())
            if most * _BY_CHANCE < len(alike):
                break
            first = (mistake for error in left for mistake in error.mistakes)
            best = next(mistake for mistake in first if counts[mistake.description] == most)
            for error in left:
                if any(mistake.description == best.description for mistake in error.mistakes):
                    explained[error] = best
            left = [error for error in left if error not in explained]
    return explained


# The fraction of too costly answers that a mistake must explain; not all, because an answer may break ties differently.
_TELLING = 0.9
_COSTED = 16  # the number of questions for which all mistakes are tried


def _find_mistake_of_costs(over: Sequence[tuple[_Answer, int]], expect: Expect) -> KnownMistake | None:
    """Return the known mistake that has the same cost in nearly all too costly answers, if there is exactly one."""
    few = over[:: -(-len(over) // _COSTED) or 1]
    alike = {m: sum(m.wrong_reference(*a.question.arguments) == cost for a, cost in few) for m in expect.mistakes}
    most = max(alike.values(), default=0)
    if most < _TELLING * len(few) or not few:
        return None
    # Two mistakes may have the same costs by chance.
    says = {mistake.description: mistake for mistake, count in alike.items() if count == most}
    return next(iter(says.values())) if len(says) == 1 else None


def _cost_text(cost: int, unit: str) -> str:
    return f"{cost:,} {counted(cost, unit).partition(' ')[2]}"


def _numbers_text(question: Question, task: Task) -> str:
    """Return the numbers in a question's arguments, in words, so that the learner can try the same numbers."""
    named = zip(parameters_of(task), question.arguments, strict=True)
    numbers = [f"{name} = {value}" for name, value in named if isinstance(value, int)]
    return f" for {joined(numbers)}" if numbers else ""


def _wrong_type_finding(question: Question, task: Task, expected: str, got: str) -> CaseFinding:
    text = f"Your answer returns {got} instead of {task.returns}."
    finding = Finding(
        FindingKind.WRONG_TYPE, text, expected=expected, got=got, next=f"What should {task.signature} return?"
    )
    return CaseFinding("type", question.name, finding)


def _normalize_names(data: Any, want: Any) -> Any:
    """Return data for comparison: chosen names are sorted and stripped of spaces."""
    if isinstance(want, Choice) and isinstance(data, list) and all(isinstance(name, str) for name in data):
        return sorted("".join(name.split()) for name in data)
    return data


def _count_right_names(given: list[str], want: Choice) -> str:
    """Return how many of the given names are right, in words."""
    if not given:
        return "it contains no name"
    if len(given) == 1 and given[0] not in _normalize_names(list(want.chosen), want):
        return "the name is wrong"
    right = sum((Counter(given) & Counter(_normalize_names(list(want.chosen), want))).values())
    if right < len(given):
        return f"of its {counted(len(given), 'names')}, {right or 'none'} {'is' if right <= 1 else 'are'} right"
    missing = len(want.chosen) - right
    start = "the name is" if right == 1 else f"all {right} names are"
    return f"{start} right, but {missing} {'is' if missing == 1 else 'are'} missing"


def _unknown_name(got: list[str], want: Choice) -> str | None:
    known = _normalize_names(list(want.among), want)
    return next((name for name in got if "".join(name.split()) not in known), None)


def _has_form(got: Any, want: Any) -> bool:
    """Return whether data has the same form as the right data. A tuple's length is fixed, a list's is not."""
    match want:
        case Choice():
            return _has_form(got, [""])
        case tuple():
            return isinstance(got, list) and len(got) == len(want) and all(map(_has_form, got, want))
        case list():
            return isinstance(got, list) and (not want or all(_has_form(element, want[0]) for element in got))
        case dict():
            return (
                isinstance(got, dict)
                and got.keys() == want.keys()
                and all(_has_form(got[key], want[key]) for key in want)
            )
    return type(got) is type(plain(want))


def _returned_text(data: Any, like: Any) -> str:
    """Return data of the wrong form in words. Strings are marked as such, which distinguishes them from names."""
    return f"the string {data!r}" if isinstance(data, str) else _printable_text(data, like)


def _printable_text(data: Any, like: Any) -> str:
    """Return data as text that can be encoded as UTF-8, with unpaired surrogates, which JSON allows, escaped."""
    return str(_python_spelling(data, like)).encode(errors="backslashreplace").decode()


def _python_spelling(data: Any, like: Any) -> Any:
    """Return data with tuples where the reference has tuples, which JSON does not have."""
    if isinstance(data, list) and isinstance(like, tuple):
        return tuple(data)
    if isinstance(data, dict) and isinstance(like, dict):
        return {key: _python_spelling(element, like.get(key)) for key, element in data.items()}
    return data

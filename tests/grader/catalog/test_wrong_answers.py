"""Each wrong answer fails with the finding that names its mistake, each requirement and hint is needed for some answer,
and a stub is not a wrong answer."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from bounds import asked, places, seen, without
from sample_answers import (
    Wrong,
    cases,
    failed_questions,
    named,
    own_cases,
    right,
    sample,
    slow_unless_sampled,
    verdict_on,
    wrong,
)

from grader.exercises import registry
from grader.exercises.feedback import common_hints, next_hint
from grader.exercises.spec import OneOf, Question
from grader.isolation.in_process import grade
from grader.judging.findings import failed_requirements

NAME = "checkpoint_dot_policy"

ALL = [(slug, name) for slug in registry.names() for name in wrong(slug)]
# Only a tenth with `jax_remat3`, because the evidence of most answers is the same text in both modes.
WAYS = [
    *slow_unless_sampled([(slug, name, False) for slug, name in ALL], 200),
    *slow_unless_sampled([(slug, name, True) for slug, name in sample(ALL, 10) if wrong(slug)[name].remat3], 200),
]


@pytest.mark.parametrize(("slug", "name", "remat3"), WAYS, indirect=["remat3"])
def test_wrong_answers_fail_with_the_finding_that_names_the_mistake(slug, name, remat3, unpatched):
    answer = wrong(slug)[name]
    # A fixed seed: whether a wrong value exceeds bfloat16's tolerance, and therefore which cases show it, is random.
    verdict = verdict_on(answer.answer, slug)
    assert verdict.outcome == "not passed", verdict
    assert json.dumps(verdict.to_dict())
    found = named(answer, verdict.findings)
    assert len(found) == 1, verdict
    # Drawn cases, which follow the task's own cases, may show the mistake, too.
    own = {case.name for case in own_cases(slug)}
    assert answer.cases is None or tuple(case for case in found[0].cases if case in own) == answer.cases, verdict
    if answer.where is not None:
        wrong_there = [question for question in cases(slug) if answer.where(**question.structure)]
        assert wrong_there and failed_questions(answer.answer, slug) == wrong_there
    assert verdict.findings[0].next
    assert not any(finding.advice for finding in verdict.findings)
    if not remat3:
        hints = registry.expect(slug).feedback.hints
        hint = next_hint(hints, verdict.findings, ())
        assert hint in answer.hints, f"the first hint after {name} is {hint}: {hints[hint].text} ({verdict})"


@pytest.mark.slow
@pytest.mark.parametrize("slug", registry.names())
def test_every_hint_for_a_findings_words_fits_a_wrong_answer(slug, unpatched):
    # The test above shows that the first hints fit.
    first = {key for answer in wrong(slug).values() for key in answer.hints}
    own = {
        hint for key, hint in registry.expect(slug).feedback.hints.items() if key not in first | common_hints().keys()
    }
    # Each alternative of a hint is tested by itself.
    left = {replace(hint, on_any_text=(words,)) for hint in own for words in hint.on_any_text}
    left |= {hint for hint in own if hint.on_text}
    for answer in wrong(slug).values():
        findings = verdict_on(answer.answer, slug).findings if left else ()
        left = {hint for hint in left if hint.closeness(findings) < 0}
    assert not left


@pytest.mark.parametrize("slug", slow_unless_sampled(list(registry.names()), 16))
def test_no_requirement_is_decoration(slug, unpatched):
    """Without any one requirement, a wrong answer passes or loses its finding, or a right answer loses its advice."""
    if isinstance(cases(slug)[0], Question):
        # For answers that are data, the questions are the requirements. For each choice, each smallest value and the
        # values between the ends, a wrong answer exists that fails only such questions.
        structures = [q.structure for q in cases(slug)]
        kinds = {(s, kind): holds for s, kinds in kinds_of_questions(slug).items() for kind, holds in kinds.items()}
        assert [kind for kind, holds in kinds.items() if not any(map(holds, structures))] == []
        for answer in wrong(slug).values():
            failed = [q.structure for q in failed_questions(answer.answer, slug)]
            kinds = {kind: holds for kind, holds in kinds.items() if not failed or not all(map(holds, failed))}
            if not kinds:
                break
        assert not kinds, f"no wrong answer fails only where that is so: {kinds.keys()}"
        return
    advised = [Wrong(answer.answer, "no barrier", (), None) for answer in right(slug).values() if answer.advised]
    wanted = asked(slug)
    decoration = {(place.group, place.number) for place in places(wanted)}
    for answer in [*advised, *wrong(slug).values()]:
        shown = seen(answer.answer, slug)
        if shown is not None and named(answer, failed_requirements(wanted, shown)[0]):
            decoration = {
                place for place in decoration if named(answer, failed_requirements(without(wanted, *place), shown)[0])
            }
        if not decoration:
            return
    assert not decoration, decoration


def kinds_of_questions(slug):
    """Return the kinds of questions by symbol, each with a function that tests whether a structure is of that kind."""

    def of(symbol, range_):
        if isinstance(range_, OneOf):
            return {value: lambda each, value=value: each.get(symbol) == value for value in range_.values}
        low, high = (lambda each, end=end: each.get(end, end) for end in (range_.low, range_.high))
        least = {"least": lambda each: symbol in each and each[symbol] == low(each)}
        if isinstance(range_.low, int) and isinstance(range_.high, int) and range_.high - range_.low < 4:
            return least
        return least | {"between": lambda each: symbol in each and low(each) < each[symbol] < high(each)}

    return {symbol: of(symbol, range_) for symbol, range_ in registry.task(slug).ranges.items()}


def stub_of_the_page(w1, w2, x):
    """Say what it does."""
    raise NotImplementedError


def empty_body(w1, w2, x): ...


def returns_none(w1, w2, x):
    return None


def stub_with_a_start(w1, w2, x):
    y = x @ w1  # noqa: F841
    raise NotImplementedError("my turn")


@pytest.mark.parametrize("answer", [stub_of_the_page, empty_body, returns_none, stub_with_a_start])
def test_a_stub_is_not_attempted_rather_than_wrong(answer):
    verdict = grade(answer, NAME)
    assert verdict.outcome == "not attempted"
    assert "still the stub" in verdict.findings[0].text


def test_not_implemented_inside_jax_is_no_stub():
    def answer(w1, w2, x):
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, jnp.sum(x)))[1]

    assert grade(answer, NAME).outcome == "not passed"

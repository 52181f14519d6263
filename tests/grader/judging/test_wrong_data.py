"""Findings about answers that are plain data, for many questions and for mistakes with equal results."""

import types

import pytest

from grader.exercises.feedback import Feedback, KnownMistake
from grader.exercises.spec import CostedAnswer, Impossible, Question
from grader.judging.findings import group_findings
from grader.judging.wrong_data import differences
from grader.tracing.capture import capture

TASK = types.SimpleNamespace(signature="square(n)", returns="an integer", shown=None)
MISTAKES = (
    KnownMistake("it doubles", lambda n: 2 * n),
    KnownMistake("it adds two", lambda n: n + 2),
    KnownMistake("it cubes", lambda n: n**3),
)


def findings(answer, numbers, reference, mistakes=MISTAKES):
    questions = [Question(f"n = {n}", (n,)) for n in numbers]
    feedback = Feedback({}, (), "the square", "What is a square?", {})
    expect = types.SimpleNamespace(reference=reference, mistakes=mistakes, feedback=feedback)
    evidence = capture(answer, "square", questions)
    return group_findings(differences(evidence, questions, TASK, expect), of=len(questions))


@pytest.mark.parametrize(("answer", "says"), [(lambda n: n + 2, "it adds two"), (lambda n: 2 * n, "it doubles")])
def test_of_mistakes_that_lead_to_the_same_the_one_that_explains_most_is_named(answer, says):
    (finding,) = findings(answer, range(2, 40), lambda n: n * n)  # the mistakes agree for n = 2: 2 + 2 = 2 * 2 = 2 ** 2
    assert finding.text == f"Your answer differs from the square: {says}."
    assert finding.cases == ("37 of 38 questions, the first: n = 3",) and finding.got == str(answer(3))


def test_of_mistakes_that_explain_as_much_the_one_that_is_right_elsewhere_is_named():
    """An answer that doubles even numbers only does not double all of them."""
    mistakes = (
        KnownMistake("it doubles", lambda n: 2 * n),
        KnownMistake("it doubles even ones", lambda n: 2 * n if n % 2 == 0 else n * n),
    )
    (finding,) = findings(lambda n: n * n if n % 2 else 2 * n, range(3, 40), lambda n: n * n, mistakes)
    assert finding.text == "Your answer differs from the square: it doubles even ones."


def test_each_of_two_mistakes_is_named_and_unknown_mistakes_get_a_question():
    def answer(n):
        return 2 * n if n < 20 else n**3 if n < 30 else n - 1

    found = findings(answer, range(10, 40), lambda n: n * n)
    assert [finding.text for finding in found] == [
        f"Your answer differs from the square{says}." for says in (": it doubles", ": it cubes", "")
    ]
    assert found[2].next == "What is a square?"
    assert [finding.cases[0][:2] for finding in found] == ["10", "10", "10"]


def test_a_mistake_that_explains_a_few_answers_by_chance_is_not_named():
    """If the real mistake is unknown, some small results will equal those of a known mistake by chance."""
    found = findings(lambda n: n + 5 if n < 5 else n * n - 1, range(2, 53), lambda n: n * n)
    assert [finding.text for finding in found] == ["Your answer differs from the square."]
    assert found[0].cases == ("all 51 questions, the first: n = 2",)


def test_an_equal_number_of_another_type_is_wrong():
    (finding,) = findings(lambda n: n * n / 1, (3, 4), lambda n: n * n)
    assert finding.kind == "wrong type" and finding.got == "9.0"


@pytest.mark.parametrize(
    ("answer", "says"), [(lambda n: [2 * n], ": it doubles"), (lambda n: [n**3 - (n == 7)], ": it cubes"),
                         (lambda n: [n**3 - n % 2], "")],
)  # fmt: skip
def test_a_mistake_is_named_that_costs_as_much_nearly_everywhere(answer, says):
    def reference(n):
        return CostedAnswer("plan", lambda plan: plan[0], n, "steps")

    (finding,) = findings(answer, range(4, 50), reference)
    assert finding.text == f"Your plan for n = 4 needs more steps than necessary{says}."
    assert finding.cases == ("all 46 questions, the first: n = 4",)


def test_a_broken_rule_is_reported_in_addition_to_too_high_costs():
    def cost(plan):
        if plan[0] > 10:
            raise Impossible("it is too long.", "How long may it be?")
        return plan[0]

    found = findings(lambda n: [n], (5, 11), lambda n: CostedAnswer("plan", cost, 1, "steps"))
    assert [(finding.kind, finding.cases) for finding in found] == [
        ("costs more", ("n = 5",)),
        ("impossible", ("n = 11",)),
    ]
    assert found[1].text == "Your plan for n = 11 breaks a rule: it is too long."


def test_a_wrong_number_is_explained_by_the_mistake_that_leads_to_most_of_them():
    """2 n and n² are equal for n = 2, so this number alone does not identify the mistake."""
    mistakes = (
        KnownMistake("it doubles", lambda n: 2 * n, "Why twice?"),
        KnownMistake("it squares", lambda n: n * n, "Why the square?"),
    )

    def reference(n):
        def cost(plan):
            known = [mistake for mistake in mistakes if mistake.wrong_reference(n) == plan[0]]
            raise Impossible(f"{plan[0]} steps.", "How many?", known, "states a wrong number")

        return CostedAnswer("plan", cost, 1, "steps")

    (finding,) = findings(lambda n: [n * n], range(2, 12), reference)
    assert finding.text == "Your plan for n = 2 states a wrong number: 4 steps: it squares."
    assert finding.next == "Why the square?"
    (finding,) = findings(lambda n: [n * n if n == 3 else -1], range(2, 12), reference)  # n = 3 matches by chance
    assert finding.text == "Your plan for n = 2 states a wrong number: -1 steps." and finding.next == "How many?"


RIGHT = {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("wrong", [[{}, {"b": 9}, {"a": 9, "b": 9}], [{"b": 0}, {"a": 9, "b": 9}, {"b": 9}]])
def test_a_finding_about_entries_shows_a_question_in_which_each_of_them_differs(wrong):
    (finding,) = findings(lambda n: RIGHT | wrong[n], range(3), lambda n: RIGHT, ())
    assert all(f"'{key}'" in finding.text for key in "ab") and finding.text.endswith("; the entry 'c' is right.")
    assert finding.got == str(RIGHT | {"a": 9, "b": 9}) and finding.expected == str(RIGHT)
    first = f"n = {wrong.index({'a': 9, 'b': 9})}"
    assert finding.cases == (first, *(f"n = {n}" for n in range(3) if wrong[n] and f"n = {n}" != first))


def test_entries_that_differ_in_no_common_question_are_in_two_findings():
    wrong = [{"a": 9}, {"b": 0}, {"a": 8}]
    found = findings(lambda n: RIGHT | wrong[n], range(3), lambda n: RIGHT, ())
    assert [(finding.got, finding.cases) for finding in found] == [
        (str(RIGHT | {"a": 9}), ("n = 0", "n = 2")),
        (str(RIGHT | {"b": 0}), ("n = 1",)),
    ]
    says = "Your answer differs from the square: under {}; the entry 'c' is right."
    ways = "'a', the numbers are too large", "'b', the numbers are too small"
    assert [finding.text for finding in found] == [says.format(way) for way in ways]


def test_a_mistake_that_explains_one_question_does_not_decide_which_question_is_shown():
    wrong = [{"a": 9}, {"a": 9, "b": 9}]
    mistakes = (KnownMistake("it is nine", lambda n: RIGHT | {"a": 9}),)
    (finding,) = findings(lambda n: RIGHT | wrong[n], range(2), lambda n: RIGHT, mistakes)
    assert "under 'a', it is nine; under 'b', the numbers are too large" in finding.text
    assert finding.got == str(RIGHT | wrong[1]) and finding.cases == ("n = 1", "n = 0")

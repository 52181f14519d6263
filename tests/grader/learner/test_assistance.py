"""Hints come one at a time, and the worked answer opens once the learner has attempts to compare it with."""

import pytest

from grader.exercises import registry
from grader.isolation import in_process
from grader.learner import assistance
from grader.learner.progress import Progress
from grader.verdicts.verdict import Finding, Verdict, not_judged

NAME = "checkpoint_dot_policy"
WRONG = "def checkpoint_dot_policy(w1, w2, x):\n    return {}\n"


@pytest.fixture
def progress(tmp_path):
    return Progress(tmp_path / "progress.sqlite")


def attempt(progress, source="", outcome="not passed", kind="not saved"):
    progress.record(NAME, Verdict(NAME, outcome, (Finding(kind, "…"),)), source)


def test_hints_are_shown_one_at_a_time_and_remain_visible(progress):
    hints = registry.expect(NAME).feedback.hints.values()
    general = [hint.text for hint in hints if not hint.on_kinds]
    first, second = (assistance.hint(NAME, progress) for _ in range(2))
    assert first.headline == "Hint 1" and general[0] in first.sentences[0] and general[1] not in str(first)
    assert general[1] == second.sentences[0] and general[0] == second.sentences[2]
    attempt(progress)
    found = [Finding("not saved", "…")]
    fitting = next(hint.text for hint in hints if hint.closeness(found) > 0)
    third = assistance.hint(NAME, progress)
    assert third.sentences[0] == fitting and third.headline == "Hint 3"
    for _ in hints:
        last = assistance.hint(NAME, progress)
    assert last.headline.startswith("All hints so far") and "No further hint fits" in last.sentences[-1]
    assert sum(hint.closeness(found) >= 0 for hint in hints) == len(last.sentences) - 1


def test_after_a_pass_there_is_no_hint(progress):
    attempt(progress, outcome="passed")
    assert "solution()" in str(assistance.hint(NAME, progress)) and progress.hints(NAME) == []


def test_a_failing_answer_after_a_pass_gets_hints_about_itself(progress):
    attempt(progress, outcome="passed")
    attempt(progress, WRONG)
    fitting = next(
        h.text for h in registry.expect(NAME).feedback.hints.values() if h.closeness([Finding("not saved", "…")]) > 0
    )
    assert assistance.hint(NAME, progress).sentences[0] == fitting
    attempt(progress, outcome="passed")
    assert "solution()" in str(assistance.hint(NAME, progress)) and len(progress.hints(NAME)) == 1


def test_the_worked_answer_opens_after_three_different_attempts(progress):
    def is_open():
        return isinstance(assistance.solution(NAME, progress, anyway=False), assistance.Worked)

    assert "so far: none" in str(assistance.solution(NAME, progress, anyway=False))
    for number in range(3):
        assert not is_open()
        for _ in range(4):  # an unchanged answer does not count as another attempt
            attempt(progress, WRONG.format(number))
    assert is_open()


def test_the_worked_answer_opens_after_a_pass_or_when_it_is_insisted_on(progress):
    assert isinstance(assistance.solution(NAME, progress, anyway=True), assistance.Worked)
    attempt(progress, WRONG, outcome="passed")
    assert isinstance(assistance.solution(NAME, progress, anyway=False), assistance.Worked)


def test_the_worked_answer_is_shown_next_to_the_learners_own(progress):
    progress.record(NAME, Verdict(NAME, "not passed", residuals="a table of mine"), WRONG.format("x < 3"))
    shown = assistance.solution(NAME, progress, anyway=True)
    text, html = str(shown), shown.html()
    assert "return x < 3" in text and "a table of mine" in text
    assert "dots_with_no_batch_dims_saveable" in text and "checkpoint_dot_policy saves" in text
    assert (
        "x &lt; 3" not in html
        and "&lt;" in html
        and "a table of mine" in html
        and "checkpoint_dot_policy saves" in html
    )


@pytest.mark.parametrize("slug", registry.names())
def test_every_worked_answer_can_be_shown(slug, progress):
    shown = assistance.solution(slug, progress, anyway=True)
    assert f"def {slug}" in str(shown)
    assert ("Saved residuals" in str(shown)) == (registry.task(slug).shown is not None)


NOT_RUNNING = {
    "an undefined name": WRONG.format("misspelled"),
    "a local name that is not set": WRONG.format("x").replace("return x", "return y; y = x"),
    "a module that does not exist": WRONG.format("x").replace("return", "import misspelled; return"),
    "a cell that raises": "limit = 1 // 0\n" + WRONG.format("limit"),
    "a cell that cannot import": "import misspelled\n@misspelled.wrap\n" + WRONG.format("x"),
}


@pytest.mark.parametrize("why", NOT_RUNNING)
def test_an_answer_that_does_not_run_is_no_attempt_and_uses_up_no_hint(why, progress, tmp_path):
    text, file = NOT_RUNNING[why], tmp_path / "answer.py"
    file.write_text(text)
    verdict = in_process.grade_file(file, exercise=NAME)
    progress.record(NAME, verdict, text)
    assert verdict.outcome == "not passed" and progress.honest_attempts(NAME) == 0
    hint = assistance.hint(NAME, progress)
    assert hint.headline == "Your last answer did not run" and progress.hints(NAME) == []
    assert hint.sentences[:2] == (verdict.findings[0].text, verdict.findings[0].next)


def test_an_answer_that_could_not_be_judged_is_not_said_to_have_failed_to_run(progress):
    progress.record(NAME, not_judged(NAME, "Your answer could not be judged: it takes too long."), "x")
    hint = assistance.hint(NAME, progress)
    assert hint.headline == "Your last answer could not be judged" and "takes too long" in hint.sentences[0]


def test_an_answer_that_raises_an_error_of_jax_is_an_attempt_and_gets_a_hint(progress, tmp_path):
    file = tmp_path / "answer.py"
    file.write_text(WRONG.format("x @ w1 @ x"))
    progress.record(NAME, in_process.grade_file(file, exercise=NAME), "x")
    assert progress.honest_attempts(NAME) == 1
    assert assistance.hint(NAME, progress).headline == "Hint 1" and len(progress.hints(NAME)) == 1

"""The panel of a check: its text equals the text without it, and its buttons do what their labels say."""

import dataclasses
import re
from pathlib import Path

import ipywidgets
import pytest
from sample_answers import wrong

from grader import check, hint, solution
from grader.isolation.in_process import grade
from grader.learner import board, next_steps, pages, session
from grader.learner.panel import Checked
from grader.verdicts.verdict import Finding, Verdict
from grader.verdicts.views import Note, VerdictView
from solutions.checkpoint_dot_policy import checkpoint_dot_policy as right

NAME = "checkpoint_dot_policy"


@pytest.fixture
def page(new_session):
    """Return the global names of exercise 10's page with a wrong answer, without any progress."""
    return {NAME: wrong(NAME)["no_checkpoint"].answer}


class Panel:
    def __init__(self, checked: Checked):
        self.lost, buttons, self.below, self.page, self.steps = checked.widget().children
        *buttons, self.busy_line = buttons.children
        self.buttons = {button.description: button for button in buttons}

    def press(self, label: str) -> str:
        self.buttons[label].click()
        assert not self.buttons[label].disabled and self.buttons[label].description == label
        return self.below.value


@pytest.mark.slow
def test_a_learners_way_through_the_panel(page):
    panel = Panel(session.check(page[NAME], page))
    assert "Not passed yet" in panel.page.value
    assert "Hint 1" in panel.press("Hint") and "Hint 2" in panel.press("Hint")
    assert "so far: one" in panel.press("Solution")
    page[NAME] = wrong(NAME)["no_policy"].answer
    assert panel.press("Check again") == "" and "does not save" in panel.page.value
    page[NAME] = right
    panel.press("Check again")
    assert "Passed" in panel.page.value and "Not passed" not in panel.page.value
    assert "The worked answer" in panel.press("Solution") and "Your last attempt" in panel.below.value
    assert "Ready to hand in" in panel.press("Submit")
    assert len(list(Path().glob("*.json"))) == 1


@pytest.mark.slow
def test_a_pass_states_the_lesson_and_links_to_the_next_exercise(page, monkeypatch):
    panel = Panel(session.check(page[NAME], page))
    assert panel.steps.outputs == ()
    page[NAME] = right
    panel.press("Check again")
    (shown,) = panel.steps.outputs
    (row,) = [line for line in (pages.ROOT / "README.md").read_text().splitlines() if f"_{NAME}.ipynb" in line]
    skill = row.split(" | ")[-1].removesuffix(" |")
    assert f"You can now {skill}." in shown["data"]["text/plain"]
    (following, *_) = [piece for piece in board.board().next if isinstance(piece, pages.Page)]
    assert f"{following.path.name}" in shown["data"]["text/html"]
    monkeypatch.setattr(session, "_last_checks", {})
    static = session.check(right, page).html()
    assert f"You can now {skill}." in static, "the page that is saved says so too"


def test_every_exercise_states_its_lesson():
    assert set(next_steps.skills()) == {page.name for page in pages.exercises()}


@pytest.mark.slow
def test_the_last_results_stay_dimmed_while_a_button_works(page):
    seen = []

    def check_again():
        seen.append(
            (shown_panel.busy_line.value, "remat-busy" in checked.widget()._dom_classes, shown_panel.page.value)
        )
        return session.check(page[NAME], page)

    checked = Checked(grade(page[NAME], NAME), verbs={"Check again": check_again})
    shown_panel = Panel(checked)
    before = shown_panel.page.value
    shown_panel.press("Check again")
    ((words, dimmed, shown),) = seen
    assert "Checking your answer" in words and dimmed and shown == before
    assert shown_panel.busy_line.value == "" and "remat-busy" not in checked.widget()._dom_classes


def test_after_a_failure_the_same_cases_are_checked_and_a_pass_needs_new_ones(page, monkeypatch):
    seeds = []

    def graded(answer, exercise, seed):
        seeds.append(seed)
        return grade(answer, exercise, seed)

    monkeypatch.setattr(session.in_process, "grade", graded)
    first, second = (session.check(page[NAME], page).verdict for _ in range(2))
    assert first.to_dict() == second.to_dict() and seeds[0] == seeds[1]
    page[NAME] = right
    assert session.check(right, page).passed and seeds[2] == seeds[0] != seeds[3]
    assert session.check(right, page).passed and len(seeds) == 5 and seeds[4] not in seeds[:4]


def test_a_verb_that_fails_says_so():
    def fails():
        raise RuntimeError("out of paper")

    panel = Panel(Checked(Verdict(NAME, "passed"), verbs={"Submit": fails}))
    assert "Submit failed" in panel.press("Submit") and "RuntimeError: out of paper" in panel.below.value


def test_what_a_new_verdict_adds_appears_before_the_old_one_goes():
    finding = Finding("also saved", "a long explanation", cases=("float32",), programs="a program")
    failed, passed = Verdict(NAME, "not passed", (finding,), residuals=""), Verdict(NAME, "passed")
    results = iter([Checked(passed, next_steps=Note("Next", "Exercise 11")), Checked(failed)])
    panel, seen = Panel(Checked(failed, verbs={"Check again": lambda: next(results)})), []
    for part in (panel.page, panel.steps):
        part.observe(
            lambda _: seen.append(("long" in panel.page.value, bool(panel.steps.outputs))), ["value", "outputs"]
        )
    panel.press("Check again")
    panel.press("Check again")
    assert seen == [(True, True), (False, True), (True, True), (True, False)]


@pytest.mark.slow
def test_a_widget_its_html_and_its_text_say_the_same(page):
    checked = session.check(page[NAME], page)
    forms = checked._repr_mimebundle_()
    assert set(forms) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert Panel(checked).page.value == forms["text/html"]
    words = set(re.findall(r"\w+", re.sub(r"<style>.*?</style>|<[^>]+>", " ", forms["text/html"], flags=re.DOTALL)))
    assert set(re.findall(r"\w+", re.sub(r"^ *\d+\. ", "", forms["text/plain"], flags=re.MULTILINE))) <= words


def test_without_verbs_there_is_no_widget():
    checked = check(3)
    assert set(checked._repr_mimebundle_()) == {"text/html", "text/plain"} and not checked.passed


@pytest.mark.slow
def test_programs_open_under_the_finding_with_its_residuals_marked():
    verdict = grade(wrong(NAME)["no_checkpoint"].answer, NAME, seed=0)
    (extra,) = verdict.findings
    assert extra.kind == "also saved"
    marked = {
        residual.primitive for residual in extra.programs.trace.residuals if residual.value in extra.programs.marked
    }
    assert marked == {"gt", "max", "mul"}
    page = VerdictView(verdict).html()
    assert page.count("<details>") == 1 and "rs-marked" in page


@pytest.mark.slow
def test_effects_are_shown_next_to_those_of_other_answers():
    effects = {effect.label: effect for effect in grade(right, NAME).effects}
    assert list(effects) == ["your answer", "the worked answer", "no checkpoint", "full recompute"]
    assert effects["your answer"] == dataclasses.replace(effects["the worked answer"], label="your answer")
    assert effects["no checkpoint"].recomputed_flops == effects["full recompute"].saved_bytes == 0


def test_an_answer_that_raises_has_no_effects():
    def checkpoint_dot_policy(w1, w2, x):
        return w1 @ undefined  # noqa: F821

    verdict = grade(checkpoint_dot_policy, NAME)
    assert verdict.effects == () and verdict.residuals is None and verdict.findings[0].programs is None


@pytest.mark.parametrize("verb", [hint, solution])
def test_verbs_ask_which_exercise_is_meant(verb):
    assert "Which exercise?" in str(verb())
    assert "did you mean exercise 10, checkpoint_dot_policy?" in str(verb("checkpoint_dot_polcy"))
    assert "the exercises are: 1, predict_residuals; 2, vjp_by_hand; 3," in " ".join(str(verb(99)).split())


@pytest.mark.parametrize("meant", [10, "10", NAME, "exercises/10_checkpoint_dot_policy.ipynb"])
def test_an_exercise_may_be_meant_by_its_number_its_name_or_its_page(meant, page):
    assert "Hint 1" in str(hint(meant)) and "attempts that run (so far: none)" in str(solution(meant))


def test_hint_is_about_the_exercise_of_the_page(page):
    assert "Hint 1" in str(session.hint(None, {NAME: right}))


def test_notices_are_read_in_every_form():
    checked = Checked(Verdict(NAME, "passed"), ("The disk is full.",))
    assert "The disk is full." in str(checked) and "The disk is full." in checked.html()


@pytest.mark.slow
def test_views_travel_as_text():
    verdict = grade(wrong(NAME)["no_checkpoint"].answer, NAME, seed=0)
    again = Verdict.from_dict(verdict.to_dict())
    assert again.findings[0].programs.startswith("forward") and "saves" in again.residuals
    assert max(map(len, again.findings[0].programs.splitlines())) <= 80
    shown = VerdictView(again)
    assert "<pre" in shown.html() and str(shown).count("Forward and backward program") == 1


def test_marks_are_no_markup():
    finding = Finding("also saved", "…", cases=("<b>",), programs="[red]<i>[/red]")
    shown = VerdictView(Verdict(NAME, "not passed", (finding,), residuals=""))
    assert "<i>" not in shown.html() and "<b>" not in shown.html() and "[red]<i>[/red]" in str(shown)


@pytest.mark.slow
def test_buttons_have_distinct_names(page):
    panel = Panel(session.check(page[NAME], page))
    assert list(panel.buttons) == ["Check again", "Hint", "Failing case", "Solution", "Submit"]
    assert all(isinstance(button, ipywidgets.Button) for button in panel.buttons.values())
    assert "The kernel that ran this check has ended" in panel.lost.value


def test_an_empty_submission_is_reported(page):
    panel = Panel(session.check(_unchanged_stub, {"checkpoint_dot_policy": _unchanged_stub}))
    assert "Nothing was written" in panel.press("Submit") and not list(Path().glob("*.json"))


def _unchanged_stub(w1, w2, x):
    raise NotImplementedError

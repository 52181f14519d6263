"""Exercises are numbered by chapter, and identified by their functions' names, whatever their earlier numbers were."""

import json
from pathlib import Path

import pytest

from grader.answers import find, submission_file
from grader.classroom.collect import NotGraded, collect
from grader.exercises import registry
from grader.exercises.registry import UnknownExercise
from grader.isolation.in_process import grade_file
from grader.learner import hand_in, pages
from grader.learner.board import board
from grader.learner.progress import Progress
from grader.verdicts.verdict import Outcome, Verdict

# Names of pages from when exercises were numbered in the order in which they were written.
BEFORE = ["01_count_residuals", "04_vjp_by_hand", "06_checkpoint_dot_policy", "12_scan_layers", "21_activation_bytes"]


def test_numbers_follow_chapters():
    found = pages.exercises()
    chapters = [page.chapter for page in found if page.number != 6]  # 6 kept its number when it came to need less
    assert chapters == sorted(chapters) and len({page.number for page in found}) == len(found)


@pytest.mark.parametrize("stem", BEFORE)
def test_an_old_page_is_known_by_its_name(stem):
    name = stem.partition("_")[2]
    (now,) = (page for page in pages.exercises() if page.name == name)
    for kept in (stem, f"{stem}.ipynb", f"exercises/my_{stem}_2.ipynb", f"{stem}-Copy1.ipynb"):
        assert pages.find(kept) == now and now.path.stem != stem
    assert pages.answered_in(f"exercises/{stem}.ipynb") == now.path


def test_a_misspelled_name_is_no_exercise_with_any_number():
    with pytest.raises(UnknownExercise, match=r"did you mean exercise 10, checkpoint_dot_policy\?"):
        pages.find("06_checkpoint_dot_polcy.ipynb")


@pytest.mark.slow
def test_an_answer_on_an_old_page_is_checked(tmp_path):
    page = json.loads(pages.find("checkpoint_dot_policy").path.read_text())
    (stub,) = (cell for cell in page["cells"] if "raise NotImplementedError" in "".join(cell["source"]))
    stub["source"] = Path("solutions/checkpoint_dot_policy.py").read_text()
    old = tmp_path / "06_checkpoint_dot_policy.ipynb"
    old.write_text(json.dumps(page))
    verdict = grade_file(pages.answered_in(str(old)))
    assert (verdict.exercise, verdict.outcome) == ("checkpoint_dot_policy", Outcome.PASSED)


def test_a_pass_under_an_exercises_old_number_counts():
    # Progress files of earlier versions identify an exercise by its name only.
    for name in ("checkpoint_dot_policy", "policy_from_rules"):
        Progress().record(name, Verdict(name, Outcome.PASSED), "")
    assert [entry.page.number for entry in board().entries if entry.state == "passed"] == [9, 10]


def test_every_removed_exercise_names_one_that_replaces_it():
    assert set(registry.REMOVED.values()) <= set(registry.names()) and not set(registry.REMOVED) & set(registry.names())


@pytest.mark.parametrize("name", registry.REMOVED)
def test_a_removed_exercise_is_refused_with_the_one_that_replaces_it(name, tmp_path):
    now = registry.REMOVED[name]
    with pytest.raises(
        UnknownExercise, match=rf"{name} was removed from the workbook, and exercise \d+, {now}, replaces it"
    ):
        pages.find(f"exercises/09_{name}.ipynb")
    answer = tmp_path / f"{name}.py"
    answer.write_text(f"def {name}(*arguments):\n    return arguments\n")
    with pytest.raises(find.NoAnswer, match=rf"it was removed from the workbook, and {now} replaces it"):
        find.read(answer)


def test_a_submission_omits_removed_exercises(tmp_path):
    for name in ("checkpoint_dot_policy", *registry.REMOVED):
        Progress().record(name, Verdict(name, Outcome.PASSED), "x = 1")
    answers, unchanged = submission_file.read(hand_in.submit(tmp_path / "mine.json"))
    assert [answer.exercise for answer in answers] == ["checkpoint_dot_policy"] and unchanged
    assert {attempt.exercise for attempt in Progress().attempts()} > set(registry.REMOVED)


def test_an_old_submission_of_a_removed_exercise_says_which_one_replaces_it(tmp_path):
    given = [{"exercise": name, "source": "x = 1", "verdict": {"outcome": "passed"}} for name in registry.REMOVED]
    path = tmp_path / "ada.json"
    path.write_text(json.dumps({"format": submission_file.FORMAT, "answers": given}))
    for answer in submission_file.read(path)[0]:
        verdict = hand_in.regrade(answer)
        assert verdict.outcome == Outcome.NOT_JUDGED and registry.REMOVED[answer.exercise] in verdict.findings[0].text
    found = collect(tmp_path).answers()
    assert [each.reason for each in found] == [registry.removal(name).rstrip(".") for name in registry.REMOVED]
    assert {type(each) for each in found} == {NotGraded}

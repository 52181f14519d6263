"""All answers are written to one new file, and graded again without trusting the file's claims."""

import json
import re

import pytest
from command_line import run_here

from grader.answers import submission_file
from grader.answers.submission_file import HandInError
from grader.isolation import check_file, in_process
from grader.learner import hand_in, pages
from grader.learner.progress import Progress, default_path
from grader.verdicts.verdict import Outcome, Verdict

NAME = "count_residuals"
RIGHT = (pages.ROOT / "solutions" / f"{NAME}.py").read_text()
WRONG = f"def {NAME}(f, *args):\n    return 1, 2\n"


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def did(outcome, source, exercise=NAME):
    return Progress().record(exercise, Verdict(exercise, outcome, evidence="e"), source)


def answers(path):
    return {entry["exercise"]: entry for entry in json.loads(path.read_text())["answers"]}


def test_a_submission_contains_the_best_attempts(tmp_path):
    did(Outcome.NOT_PASSED, "first")
    passed = did(Outcome.PASSED, "second é")
    did(Outcome.NOT_PASSED, "third")
    did(Outcome.NOT_PASSED, "older", "save_named")
    did(Outcome.NOT_JUDGED, "newer", "save_named")
    did(Outcome.PASSED, "with its text", "remat_flag")
    did(Outcome.PASSED, "", "remat_flag")
    path = hand_in.submit()
    assert re.fullmatch(r"remat-workbook-\d{4}-\d\d-\d\d\.json", path.name) and (tmp_path / path).exists()
    found = answers(path)
    assert {name: entry["source"] for name, entry in found.items()} == {
        NAME: "second é",
        "save_named": "newer",
        "remat_flag": "with its text",
    }
    entry = found[NAME]
    assert Verdict.from_dict(entry["verdict"]) == passed.verdict and entry["verdict"]["evidence"] == "e"
    assert (entry["time"], entry["versions"], entry["attempts"]) == (passed.time, passed.versions, 3)
    assert json.loads(path.read_text())["versions"]["jax"]


def test_nothing_is_overwritten(tmp_path):
    did(Outcome.PASSED, RIGHT)
    path = tmp_path / "mine.json"
    path.write_text("kept")
    assert [hand_in.submit(path).name for _ in range(2)] == ["mine_2.json", "mine_3.json"]
    assert path.read_text() == "kept"
    assert hand_in.submit() != hand_in.submit()


def test_an_empty_submission_is_reported():
    with pytest.raises(HandInError, match=r"nothing to submit\. You have not checked any answer"):
        hand_in.submit()
    default_path().parent.mkdir(exist_ok=True)
    default_path().write_bytes(b"damaged" * 100)
    with pytest.raises(HandInError, match="was damaged"):
        hand_in.submit()


def test_a_submission_that_cannot_be_written_is_reported(tmp_path):
    did(Outcome.PASSED, RIGHT)
    with pytest.raises(HandInError, match="No such file or directory"):
        hand_in.submit(tmp_path / "nowhere" / "mine.json")
    status, out, err = run_here("submit", "--out", tmp_path / "nowhere" / "mine.json")
    assert (status, out) == (1, "") and "Choose another file or folder." in err


def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    did(Outcome.PASSED, RIGHT)

    def full(self, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(HandInError, match="No space left on device"):
        hand_in.submit(tmp_path / "mine.json")
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.slow
def test_answers_that_were_never_checked_are_listed(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    folder = tmp_path / "exercises"
    folder.mkdir()
    assert hand_in.unchecked() == []  # there are no pages yet
    for page in pages.exercises():
        pages.reset(page)
    assert hand_in.unchecked() == []  # the pages have stubs only
    page = pages.find(NAME)
    notebook = json.loads(page.path.read_text())
    (stub,) = [cell for cell in notebook["cells"] if f"def {NAME}" in "".join(cell["source"])]
    stub["source"] = WRONG
    page.path.write_text(json.dumps(notebook))
    (sentence,) = hand_in.unchecked()
    assert f"exercises/{page.path.name} was never checked" in sentence
    did(Outcome.NOT_PASSED, RIGHT)
    assert len(hand_in.unchecked()) == 1
    status, out, _ = run_here("submit")
    assert status == 0 and "Please note: The current answer in exercises/" in out
    did(Outcome.NOT_PASSED, f"# The same.\n{WRONG}")
    assert hand_in.unchecked() == []


@pytest.mark.slow
def test_an_answer_is_graded_by_its_behavior_not_by_the_files_claims(check_in_process):
    """The answers' current results count, not the results that the file claims."""
    did(Outcome.PASSED, RIGHT)
    did(Outcome.PASSED, f"import no_such_module\n\ndef save_named(f, names):\n    return f({NAME})\n", "save_named")
    did(Outcome.PASSED, "", "activation_bytes")
    did(Outcome.NOT_PASSED, "def name_preactivation(x, W1, W2):\n    raise NotImplementedError", "name_preactivation")
    path = hand_in.submit()
    status, out, err = run_here("check", path)
    assert (status, err) == (2, "")
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        Outcome.NOT_JUDGED,
        Outcome.PASSED,
        Outcome.NOT_ATTEMPTED,
        Outcome.NOT_PASSED,
    ]
    assert out.splitlines()[1] == f"passed               {NAME}"
    assert out.splitlines()[3] == "not passed           save_named  (submitted as passed)"
    # Grading a file adds no attempt.
    assert Progress().attempts(NAME)[-1].source == RIGHT and len(Progress().attempts()) == 4


@pytest.mark.slow
def test_verdicts_of_a_handed_in_file_as_json(check_in_process):
    did(Outcome.PASSED, f"{WRONG}\ndef save_named(): return 3")  # one answer's source may define another answer's name
    status, out, err = run_here("check", hand_in.submit(), "--json")
    found = json.loads(out)
    assert (status, err, found["unchanged"]) == (1, "", True)
    (verdict,) = found["verdicts"]
    assert (verdict["exercise"], verdict["outcome"]) == (NAME, Outcome.NOT_PASSED) and verdict["findings"]


@pytest.mark.slow
def test_a_changed_file_is_graded_and_reported(check_in_process):
    did(Outcome.NOT_PASSED, WRONG)
    path = hand_in.submit()
    path.write_text(path.read_text().replace('"not passed"', '"passed"'))
    status, out, err = run_here("check", path)
    assert status == 1 and "(submitted as passed)" in out
    assert f"{path.name} was changed or damaged after it was written" in err


def test_the_checksum_is_of_the_content(tmp_path):
    did(Outcome.PASSED, RIGHT)
    path = hand_in.submit()
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items()))))  # same content, formatted differently
    assert submission_file.read(path)[1]
    for change in ({"time": "then"}, {"answers": content["answers"] * 2}, {"checksum": None}, {"more": 1}):
        path.write_text(json.dumps(content | change))
        assert not submission_file.read(path)[1]


def changed(**fields):
    entry = {"exercise": NAME, "source": "", "verdict": {"outcome": Outcome.PASSED}} | fields
    return json.dumps({"format": submission_file.FORMAT, "answers": [entry]})


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        "3",
        "[" * 100_000,
        '{"answers": 3}',
        '{"answers": [3], "format": ""}',
        changed(exercise="../../etc/passwd"),
        changed(exercise=[]),
        changed(source=3),
        changed(verdict={"outcome": "great"}),
        changed(verdict=3),
        changed().replace("submission 1", "submission 2"),
        json.dumps({"format": submission_file.FORMAT, "answers": []}),
    ],
)
def test_a_file_that_submit_did_not_write_is_refused(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    status, out, err = run_here("check", path)
    assert (status, out) == (2, "") and "is not a file that `python -m grader submit` of this version writes" in err


def test_a_missing_file_is_reported(tmp_path):
    status, _, err = run_here("check", tmp_path / "none.json")
    assert status == 2 and "File not found" in err


@pytest.mark.slow
def test_a_file_may_be_checked_for_one_exercise_of_several(tmp_path):
    path = tmp_path / "both.py"
    path.write_text(f"{RIGHT}\n\ndef save_named(f, names):\n    raise NotImplementedError\n")
    assert check_file.check_file(path, exercise=NAME).passed
    assert in_process.grade_file(path).outcome == Outcome.NOT_JUDGED

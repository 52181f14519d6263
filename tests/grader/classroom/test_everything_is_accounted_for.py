"""The report contains every learner and every file of a folder or a zip file exactly once."""

import json
import random
import stat
import zipfile
from collections import Counter
from concurrent.futures import Future
from pathlib import PurePosixPath

import pytest
from sampling import few

from grader.answers import submission_file
from grader.classroom import collect, grade_class, run_folder
from grader.classroom.found_files import LITTER, readable
from grader.classroom.grade import Grade
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict

NAMES = [
    "ada",
    "Ada",
    "ben b.",
    "Zoë 李",
    "submitted",
    "source",
    "=1+1",
    "a\nb",
    "c" * 200,
    "-",
    "con",
    "week 1",
    "e\u0301",
]
NAMES += ["é", "'", "$(x)", "doe_jane_12345_assignsubmission_file", "submission_123", "class", ".git", *sorted(LITTER)]
FILES = [
    "a.py",
    "A.py",
    "answer.ipynb",
    "remat-workbook.json",
    "notes.txt",
    "noext",
    ".hidden.py",
    "x.tar.gz",
    "in.zip",
]
FILES += ["a.py.bak", "submitted", ".DS_Store", "doe_jane_12_34_a.py", "Thumbs.db", "gradebook.db", "grades.csv"]
EMPTY = json.dumps({"format": submission_file.FORMAT, "answers": []})
CONTENT = ["", "x = 1", "def policy_from_rules(): pass", "another", EMPTY]
KINDS = ["file"] * 6 + ["folder", "link"]


def tree(draw):
    """Return random paths of files, empty folders and links, as tuples, with the kind of each."""
    found = {}
    for _ in range(draw.randrange(1, 25)):
        parts = (*(draw.choice(NAMES) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))), draw.choice(FILES))
        inner = [parts[:end] for end in range(1, len(parts))]
        if any(found.get(each, "folder") != "folder" for each in inner) or any(p[: len(parts)] == parts for p in found):
            continue  # a file cannot contain other files
        found[parts] = draw.choice(KINDS)
    return found


def is_aside(part):
    return part in LITTER or part.startswith(".")


def expected(files, course):
    """Return the expected keys of the report and the learners. `course`: the folder is nbgrader's course folder."""
    keys, aside, learners = [], set(), set()
    for parts, kind in files.items():
        if course and parts[0] != "submitted" and not is_aside(parts[0]):
            aside.add(("", parts[0]))
            continue
        if course and parts[0] == "submitted":
            parts = parts[1:]
        names = list(map(readable, parts))
        first = next((place for place, part in enumerate(parts) if is_aside(part)), None)
        if first == 0:
            aside.add(("", names[0]))
            continue
        alone = len(parts) == 1 and kind != "folder"
        learner = readable(PurePosixPath(parts[0]).stem) if alone else names[0]
        learners.add(learner)
        if first is not None:
            aside.add((learner, "/".join(names[1 : first + 1])))
        elif kind != "folder":
            keys.append((learner, names[0] if alone else "/".join(names[1:])))
    return Counter([*keys, *aside]), learners


def is_course(files):
    tops = {parts[0] for parts in files if not is_aside(parts[0])}
    nbgraders = {"autograded", "downloaded", "feedback", "gradebook.db", "grades.csv", "nbgrader_config.py", "release"}
    nbgraders |= {"submitted", "source"}
    opened = [
        parts for parts, kind in files.items() if parts[0] == "submitted" and (len(parts) > 1 or kind == "folder")
    ]
    return bool(opened) and tops <= nbgraders and ("submitted",) not in {p for p, k in files.items() if k != "folder"}


def write(draw, files, place):
    for parts, kind in files.items():
        path = place.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir(exist_ok=True)
        elif kind == "link":
            path.symlink_to("/etc/passwd")
        else:
            path.write_text(draw.choice(CONTENT))


def pack(draw, files, place):
    top = draw.choice(["", "", f"{place.stem}/"])
    with zipfile.ZipFile(place, "w") as archive:
        for parts, kind in files.items():
            info = zipfile.ZipInfo(top + draw.choice(["/", "\\"]).join(parts) + "/" * (kind == "folder"))
            if kind == "link":
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "" if kind == "folder" else draw.choice(CONTENT))


class Place:
    """An executor that grades immediately: an answer to another exercise, no attempt, or a pass."""

    losses, ahead, set_aside = (), 3, {}

    def submit(self, submission, seed, secret, seconds):
        future = Future()
        future.set_result(submission)
        return future

    def grade_of(self, future):
        submission = future.result()
        kinds = {b"another": FindingKind.ANOTHER_EXERCISE, b"": FindingKind.NOT_ATTEMPTED}
        outcome = Outcome.NOT_ATTEMPTED if submission.content in kinds else Outcome.PASSED
        found = [Finding(kinds[submission.content], "…")] if submission.content in kinds else []
        return Grade(
            submission.learner, submission.name, Verdict("policy_from_rules", outcome, tuple(found), ("Right.",))
        )


@pytest.mark.slow
@pytest.mark.parametrize("put", few([write, pack], 1))
def test_every_learner_and_every_file_is_in_the_report_once(put, tmp_path, seed):
    draw, courses = random.Random(seed), 0
    for number in range(60):
        files = tree(draw)
        if draw.random() < 0.3:  # nbgrader's folder layout
            files = {("submitted", *parts): kind for parts, kind in files.items()} | {("source", "a.py"): "file"}
        place = tmp_path / f"{number}.zip" if put is pack else tmp_path / str(number)
        put(draw, files, place)
        keys, learners = expected(files, course := is_course(files))
        courses += course
        if not learners:
            with pytest.raises(collect.CollectError, match="contains no learner's"):
                collect.collect(place)
            continue
        class_ = collect.collect(place)
        found = Counter([(file.learner, file.path) for file in (*class_.files, *class_.not_graded)])
        assert (found, {*class_.learners}) == (keys, learners), files

        run = run_folder.Run.begin(tmp_path / f"out{number}", 3, draw.choice([None, "policy_from_rules"]), True)
        report, _ = grade_class.grade_class(class_, run, Place())
        assert {grade.learner for grade in report.grades} == learners
        graded = [(grade.learner, grade.name) for grade in (*report.grades, *report.others) if grade.name]
        without = [(each.learner, each.path.split("/")[-1]) for each in report.not_graded]
        names = Counter({})
        for (learner, path), times in keys.items():
            names[learner, path.split("/")[-1]] += times
        assert Counter(graded + without) == names, files
        report.write(run.folder)
        assert len(json.loads((run.folder / "grades.json").read_text())["not_graded"]) == len(without)
    assert 5 < courses < 55


def test_a_folder_called_submitted_is_one_learner_s_next_to_others(tmp_path):
    files = {("submitted", "a.py"): "file", ("ada", "a.py"): "file", ("ben.py",): "file"}
    write(random.Random(0), files, tmp_path / "in")
    pack(random.Random(0), files, tmp_path / "class.zip")
    for place in (tmp_path / "in", tmp_path / "class.zip"):
        assert {*collect.collect(place).learners} == {"submitted", "ada", "ben"}


def test_a_thousand_files_of_one_learner_are_all_in_the_report(tmp_path):
    for number in range(1000):
        (tmp_path / "in" / "ada").mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / "ada" / f"{number}.py").write_text(f"# {number}")
    (tmp_path / "in" / "ben.py").touch()
    run = run_folder.Run.begin(tmp_path / "out", 3, None, True)
    report, _ = grade_class.grade_class(collect.collect(tmp_path / "in"), run, Place())
    graded = {grade.name for grade in (*report.grades, *report.others) if grade.learner == "ada" and grade.name}
    without = {each.path for each in report.not_graded}
    assert len(graded) == collect.MAX_ANSWERS and not graded & without
    assert graded | without == {f"{number}.py" for number in range(1000)}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_in_a_zip_several_times_is_reported_each_time(tmp_path):
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for content in ("1", "2", "2"):
            for name in ("ada/a.py", "ada/notes.txt"):
                archive.writestr(name, content)
    run = run_folder.Run.begin(tmp_path / "out", 3, None, True)
    report, _ = grade_class.grade_class(collect.collect(tmp_path / "class.zip"), run, Place())
    assert [grade.name for grade in (*report.grades, *report.others)] == ["a.py", "a.py"]
    assert [each.path for each in report.not_graded] == ["notes.txt"] * 3 + ["a.py"]
    assert "the same content" in report.not_graded[-1].reason

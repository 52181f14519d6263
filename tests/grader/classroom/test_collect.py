"""Every file in a folder or a zip file is graded, refused with a reason, or listed. Zip files are not trusted."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

from grader.answers import submission_file
from grader.classroom import collect, found_files
from grader.classroom.collect import CollectError, NotGraded, Refused


@pytest.fixture
def put(tmp_path):
    """Write files, given as {path: text}, into a folder, and return it."""

    def put(files):
        for name, text in files.items():
            path = tmp_path / "class" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "class"

    return put


@pytest.fixture
def packed(tmp_path):
    """Write members, given as (name or ZipInfo, content) pairs, into a zip file, and return it."""

    def packed(members):
        with zipfile.ZipFile(tmp_path / "class.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members:
                archive.writestr(name, content)
        return tmp_path / "class.zip"

    return packed


def submissions(place):
    """Return a dictionary from (learner, file, exercise) to the content, or to the reason why there is none."""
    items = [
        i if isinstance(i, Refused) else i.read()
        for i in collect.collect(place).answers()
        if not isinstance(i, NotGraded)
    ]
    return {(i.learner, i.name, i.exercise): i.reason if isinstance(i, Refused) else i.content.decode() for i in items}


PLAIN = {
    "ada/a.py": "1",
    "ada/in/deep.ipynb": "2",
    "ben b./B.PY": "3",
    "Zoë 李.py": "4",
    ".DS_Store": "",
    "cy/x.txt": "",
}
NBGRADER = {
    "submitted/ada/week 1/a.py": "1",
    "submitted/ada/week 2/deep.ipynb": "2",
    "submitted/ben b./week 1/B.PY": "3",
    "submitted/Zoë 李/week 1/Zoë 李.py": "4",
    "submitted/cy/week 1/x.txt": "",
    "source/week 1/a.py": "the teacher's",
    "gradebook.db": "",
}


@pytest.mark.parametrize("files", [PLAIN, NBGRADER], ids=["plain", "nbgrader"])
@pytest.mark.parametrize("kind", ["folder", "zip", "zip of the folder"])
def test_learners_and_files_are_found_in_every_layout(put, packed, kind, files):
    if kind == "folder":
        place = put(files)
    else:
        top = "class/" * (kind == "zip of the folder")
        place = packed([(top + name, text) for name, text in files.items()] + [("__MACOSX/._x.py", "")])
    assert submissions(place) == {
        ("ada", "a.py", None): "1",
        ("ada", "deep.ipynb", None): "2",
        ("ben b.", "B.PY", None): "3",
        ("Zoë 李", "Zoë 李.py", None): "4",
    }
    seen = collect.collect(place)
    assert {*seen.learners} == {"ada", "ben b.", "Zoë 李", "cy"}
    text = "x.txt" if files is PLAIN else "week 1/x.txt"
    aside = {".DS_Store"} if files is PLAIN else {"source", "gradebook.db"}
    aside |= {"__MACOSX"} if kind != "folder" else set()
    assert sorted((each.learner, each.path) for each in seen.not_graded) == sorted(
        [("cy", text), *(("", name) for name in aside)]
    )


def test_a_file_of_submit_is_as_many_submissions_as_it_has_answers(put):
    answers = [("policy_from_rules", "a"), ("save_named", "b"), ("nested_scan", ""), ("remat_flag", "\ud800")]
    given = [{"exercise": name, "source": text, "verdict": {"outcome": "passed"}} for name, text in answers]
    place = put({"ada.json": json.dumps({"format": "remat-workbook submission 1", "answers": given}), "ben.json": "{}"})
    found = submissions(place)
    assert (
        found["ada", "policy_from_rules.py", "policy_from_rules"] == "a"
        and found["ada", "save_named.py", "save_named"] == "b"
    )
    assert "no text" in found["ada", "ada.json", "nested_scan"] and "no text" in found["ada", "ada.json", "remat_flag"]
    assert "grader submit" in found["ben", "ben.json", None]
    assert collect.collect(place).answers("policy_from_rules")[0].name == "policy_from_rules.py"


def test_an_unreadable_file_has_a_reason(put):
    place = put({"ada/ok.py": "", "ada/.hidden.py": "", "ada/notes": "", "ben\n/=1+1.py": "x", "é" * 120 + ".py": "y"})
    (place / "ada" / "away").symlink_to("/")
    (place / "cy.py").symlink_to(place / "ada" / "ok.py")
    (place / "dee").symlink_to(place / "ada")
    os.mkfifo(place / "pipe.py")
    (place / "ada" / "all.zip").write_bytes(b"")
    (place / os.fsdecode(b"\xff.py")).write_text("z")
    (place / ".git").mkdir()
    with (place / "big.ipynb").open("wb") as file:
        file.truncate(500 * 2**20)
    seen = collect.collect(place)
    aside = [(each.learner, each.path) for each in seen.not_graded]
    assert sorted(aside) == [("", ".git"), ("ada", ".hidden.py"), ("ada", "notes")]
    found = submissions(place)
    link = "it is a link, and links are not followed"
    assert found == {
        ("ada", "ok.py", None): "",
        ("ada", "away", None): link,
        ("ada", "all.zip", None): "it is a zip file inside the folder: unpack it there",
        ("ben\\n", "=1+1.py", None): "x",
        ("é" * 120, "é" * 120 + ".py", None): "y",
        ("cy", "cy.py", None): link,
        ("dee", "dee", None): link,
        ("pipe", "pipe.py", None): "it is not a file",
        ("\\udcff", "\\udcff.py", None): "z",
        ("big", "big.ipynb", None): "it has 524,288,000 bytes; at most 20,971,520 are read",
    }


def test_a_file_that_is_replaced_by_a_link_is_not_followed(put, monkeypatch):
    place = put({"ada/week 1/a.py": "hers", "ben/week 1/b.py": "his", "secret/a.py": "the instructor's"})
    (place / "secret").rename(place.parent / "secret")
    seen = collect.collect(place)
    (place / "ada").rename(place.parent / "ada")
    (place / "ada").symlink_to(place.parent / "secret")
    assert [answer.read().content for answer in seen.answers()] == [b"hers", b"his"], "they were read when found"

    listed, swapped = os.listdir, []

    def swap(folder):  # called after a folder's files were listed, before they are opened
        names = listed(folder)
        if names == ["b.py"]:
            swapped.append(names)
            (place / "ben" / "week 1").rename(place.parent / "ben")
            (place / "ben" / "week 1").symlink_to(place.parent / "secret")
        return names

    monkeypatch.setattr(os, "listdir", swap)
    found = submissions(place)
    assert swapped and "the instructor's" not in found.values()
    assert found["ben", "b.py", None] == "Not a directory"


def test_folders_in_folders_are_opened_to_a_depth(put):
    place = put({"ada/" + "a/" * 60 + "deep.py": "x", "ben/b.py": "y"})
    found = submissions(place)
    assert found.pop(("ben", "b.py", None)) == "y"
    assert list(found.values()) == ["folders are nested more than 40 levels deep; deeper ones were not read"]


def test_one_learners_files_fill_no_disk(put, monkeypatch):
    monkeypatch.setattr(collect, "MAX_BYTES", 10)
    found = submissions(put({"ada/a.py": "1234567", "ada/b.py": "1234567", "ada/c.py": "1", "ben/b.py": "1234567"}))
    assert found["ada", "b.py", None].startswith("the learner's files have more than")
    assert found["ada", "c.py", None] == "1" and found["ben", "b.py", None] == "1234567"


def test_whose_folder_cannot_be_read_has_not_handed_in_nothing(put):
    place = put({"ada/in/a.py": "1", "ben/b.py": "2", "cy/x.txt": ""})
    os.chmod(place / "ada" / "in", 0)
    script = """
import os, sys
from pathlib import Path
from grader.classroom import collect, report
if os.geteuid() == 0:  # who may read all
    os.chown(sys.argv[1], 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
class_ = collect.collect(Path("."))
rows = report.complete_grades([], class_.learners, ["policy_from_rules"], class_.not_graded, class_.unreadable)
print([(grade.learner, grade.verdict.outcome.value, "Permission denied" in grade.reason) for grade in rows])
"""
    command = [sys.executable, "-c", script, place]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place)
    expected = [("ada", "could not be judged", True), ("ben", "not attempted", False), ("cy", "not attempted", False)]
    assert (done.stdout.strip(), done.stderr) == (str(expected), "")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_is_one_learners(tmp_path, method):
    text, place, refused = "".join(map(str, range(300))), tmp_path / "class.zip", 0
    for damaged in range(25):
        with zipfile.ZipFile(place, "w", method) as archive:
            archive.writestr("ada.py", text)
            archive.writestr("ben.py", "fine")
            size = archive.getinfo("ada.py").compress_size
        content = bytearray(place.read_bytes())
        content[30 + len("ada.py") + damaged * size // 25] ^= 0xFF  # after the member's header
        place.write_bytes(content)
        found = submissions(place)
        assert found["ben", "ben.py", None] == "fine" and len(found) == 2
        assert found["ada", "ada.py", None].startswith((text, "it cannot be read from the zip file ("))
        refused += found["ada", "ada.py", None] != text
    assert refused > 20


def test_a_hostile_zip_leads_nowhere_and_fills_nothing(packed, monkeypatch):
    monkeypatch.setattr(found_files, "MAX_FILE", 10**6)
    link = zipfile.ZipInfo("cy/link.py")
    link.external_attr = 0o120777 << 16
    place = packed(
        [
            ("../../out.py", "1"),
            ("/etc/abs.py", "2"),
            ("ada/../ben/x.py", "3"),
            ("C:\\windows.py", "4"),
            ("dee/" + "n" * 300 + "\n.py", "5"),
            (link, "/etc/passwd"),
            ("bomb/bomb.ipynb", bytes(2 * 10**6)),
            ("liar.py", bytes(2 * 10**6)),
            ("torn.py", "torn and torn"),
            ("empty/", ""),
        ]
    )
    # liar.py claims a smaller size than it has; the content of torn.py does not match its checksum.
    content = bytearray(place.read_bytes())
    entry = content.rindex(b"liar.py") - 46
    content[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    entry = content.index(b"torn.py")
    content[entry + 8] ^= 0xFF
    place.write_bytes(content)
    found = {(learner, name): text for (learner, name, _), text in submissions(place).items()}
    for key in [("out", "out.py"), ("etc", "abs.py"), ("ada", "x.py")]:
        assert found.pop(key) == "its path in the zip file points outside the folder"
    assert found.pop(("C:", "windows.py")) == "4"
    assert found.pop(("dee", "n" * 300 + "\\n.py")) == "5"
    assert "is a link" in found.pop(("cy", "link.py"))
    assert found.pop(("bomb", "bomb.ipynb")) == "it has 2,000,000 bytes; at most 1,000,000 are read"
    assert "it cannot be read from the zip file" in found.pop(("liar", "liar.py"))
    assert "it cannot be read from the zip file" in found.pop(("torn", "torn.py"))
    assert found == {} and "empty" in collect.collect(place).learners


def test_members_of_a_zip_with_invalid_names_are_reported(packed):
    names = ["@fay.py", "gus/@hal.py", "ida.py@.txt", "jo/page.ipynb/", ""]
    place = packed([*((name, "x") for name in names), ("./", ""), ("ada/", ""), ("ben.py", "fine")])
    content = place.read_bytes()
    for name in names:
        content = content.replace(name.encode(), name.replace("@", "\0").encode()) if name else content
    place.write_bytes(content)
    found = submissions(place)
    assert found.pop(("ben", "ben.py", None)) == "fine"
    assert set(found.values()) == {"its name in the zip file is not a valid file name"}
    assert {learner for learner, *_ in found} == {r"\x00fay", "gus", r"ida.py\x00", "jo", "(no name)"}
    assert {*collect.collect(place).learners} == {"ada", "ben", *(learner for learner, *_ in found)}


def test_one_learner_cannot_keep_all_others_waiting(put, packed, monkeypatch):
    monkeypatch.setattr(collect, "MAX_ANSWERS", 3)
    files = {f"ada/{number}.py": "x" for number in range(9)} | {"ben/b.py": "x"}
    for place in (put(files), packed(files.items())):
        found = submissions(place)
        assert len(found) == 5 and "more than 3 answers" in found["ada", "", None]
    monkeypatch.setattr(collect, "MAX_ANSWERS", 100)
    monkeypatch.setattr(found_files, "MAX_ENTRIES", 5)
    for place in (put(files), packed(files.items())):
        assert sum(file.learner == "ada" for file in collect.collect(place).files) <= 6
        assert any("were not read" in reason for reason in submissions(place).values())


def test_a_zip_is_unpacked_only_up_to_a_size_limit(packed, monkeypatch):
    unpacked = []

    class Reader(zipfile.ZipExtFile):
        def read(self, n=-1):
            content = super().read(n)
            unpacked.append(len(content))
            return content

    monkeypatch.setattr(zipfile, "ZipExtFile", Reader)
    monkeypatch.setattr(collect, "MAX_BYTES", 10_000)
    place = packed([*((f"ada/{number}.py", bytes(3000)) for number in range(20)), ("ben/b.py", "x")])
    damaged = bytearray(place.read_bytes())
    for number in range(20):  # a wrong checksum; the bytes still count, because unpacking them took time
        damaged[damaged.rindex(b"ada/%d.py" % number) - 46 + 16] ^= 0xFF
    place.write_bytes(damaged)
    found = submissions(place)
    assert found["ben", "b.py", None] == "x" and sum("MiB in total" in reason for reason in found.values()) == 17
    assert sum(unpacked) <= 10_001


def test_a_file_with_many_answers_is_read_once(put, monkeypatch):
    answers = [
        {"exercise": "policy_from_rules", "source": f"x = {n}", "verdict": {"outcome": "passed"}} for n in range(20)
    ]
    place = put({"ada/remat-workbook.json": json.dumps({"format": submission_file.FORMAT, "answers": answers})})
    parse, parsed = submission_file.parse, []
    monkeypatch.setattr(submission_file, "parse", lambda *given: parsed.append(given) or parse(*given))
    listed = collect.collect(place).answers()
    assert [each.read().content.decode() for each in listed] == [answer["source"] for answer in answers]
    assert len(parsed) == 1 and [each.read().digest for each in listed] == [each.digest for each in listed]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"PK\x05\x06" + bytes(10)])
def test_a_path_that_is_neither_a_folder_nor_a_zip_is_refused(tmp_path, content):
    (tmp_path / "class.zip").write_bytes(content)
    with pytest.raises(CollectError, match="neither a folder nor a readable zip"):
        collect.collect(tmp_path / "class.zip")
    with pytest.raises(CollectError, match="File not found"):
        collect.collect(tmp_path / "nothing.zip")

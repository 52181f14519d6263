"""The report: rows that spreadsheets treat as text, self-contained pages without scripts, and Gradescope's JSON."""

import csv
import dataclasses
import io
import json

import pytest
from axe_playwright_python.sync_playwright import Axe

from grader.classroom.collect import NotGraded
from grader.classroom.grade import Grade, Picture
from grader.classroom.report import Report, complete_grades, file_names
from grader.verdicts.verdict import Effect, Finding, Verdict

NAME = "checkpoint_dot_policy"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
HOSTILE = "<script>alert(1)</script>&\"'"
ALSO = Finding("also saved", f"You also saved {HOSTILE}.", "x @ w1", "relu(x @ w1)", 16384, cases=("float32",))
PICTURE = Picture(
    "Forward and backward programs of your answer (float32)",
    [
        [[("forward", "bold")], [("S  ", "rs-S"), (f"a = dot x w1 {HOSTILE}", "rs-marked")]],
        [[("R  b = sin a", "rs-R")]],
    ],
    [[("S saved  R recomputed", "")]],
)
FAILED = Grade("=ada", "answer.py", Verdict(NAME, "not passed", (ALSO,)), f"hello {HOSTILE}\n", 0.5, PICTURE)
EFFECTS = Effect("your answer", 72, 4096), Effect("the worked answer", 72, 4096)
PASSED = Grade(
    "ben", "page.ipynb", Verdict(NAME, "passed", shown=("It saves x @ w1.",), effects=EFFECTS, scene="on two layers")
)
LOST = Grade("ben", "=link.py", Verdict("", "could not be judged", (Finding("could not be judged", "-1 is a link."),)))


@pytest.fixture
def report():
    graded = [FAILED, PASSED, LOST, dataclasses.replace(FAILED, learner="ben")]
    files = [("", ".git"), ("ben", "notes.txt"), *[("cy", "x.txt")] * 7]
    not_graded = [NotGraded(learner, path, "it is no notebook") for learner, path in files]
    best = complete_grades(graded, ["=ada", "ben", "cy"], not_graded=not_graded)
    return Report(5, True, best, [grade for grade in graded if grade not in best], not_graded)


def test_a_spreadsheet_takes_every_cell_for_text(report):
    rows = list(csv.reader(io.StringIO(report.csv())))
    pages = [row.pop() for row in rows]
    assert pages[0] == "feedback" and pages[2:] == ["feedback/ben.html"] * 2 + ["feedback/cy.html"]
    assert rows == [
        ["learner", "exercise", "verdict", "score", "reason"],
        ["'=ada", NAME, "not passed", "0", ALSO.text],
        ["ben", "", "could not be judged", "0", "'-1 is a link."],
        ["ben", NAME, "passed", "1", "It saves x @ w1."],
        ["cy", NAME, "not attempted", "0", rows[4][4]],
    ]
    assert "x.txt (it is no notebook) and 2 more" in rows[4][4]
    assert "without a sandbox" in dataclasses.replace(report, sandboxed=False).csv()


def test_a_row_without_an_answer_names_a_file_that_could_not_be_judged():
    _, row = complete_grades([LOST], ["ben"], [NAME])
    assert row.verdict.outcome == "not attempted" and row.reason.endswith("Not graded: =link.py (see its own row).")


def test_json_and_gradescopes_results_have_every_grade(report, tmp_path):
    report.write(tmp_path, gradescope=True)
    content = json.loads((tmp_path / "grades.json").read_text())
    assert (content["seed"], content["sandboxed"]) == (5, True)
    assert [grade["learner"] for grade in content["grades"]] == ["=ada", "ben", "ben", "cy"]
    assert [grade["learner"] for grade in content["others"]] == ["ben"]
    ben = {"learner": "ben", "path": "notes.txt", "reason": "it is no notebook"}
    assert content["not_graded"][1] == ben and len(content["not_graded"]) == 9
    table = list(csv.reader(io.StringIO((tmp_path / "not_graded.csv").read_text())))
    assert table[2] == list(ben.values()) and len(table) == 10
    assert all((tmp_path / grade["feedback"]).is_file() for grade in content["grades"])
    results = json.loads((tmp_path / "gradescope" / "ben" / "results.json").read_text())
    assert results["score"] == sum(test["score"] for test in results["tests"]) == 1
    assert [(test["name"], test["status"]) for test in results["tests"]] == [("=link.py", "failed"), (NAME, "passed")]
    assert "the seed 5" in results["output"] and "It saves x @ w1." in results["tests"][1]["output"]


@pytest.mark.parametrize(
    ("in_groups", "said"), [(True, "its own control group"), (False, "No answer had a control group"), (None, "")]
)
def test_pages_and_gradescopes_results_say_whether_answers_had_control_groups(report, in_groups, said):
    report = dataclasses.replace(report, in_groups=in_groups)
    for text in (report.page("=ada", report.grades[:1]), report.results(report.grades[:1])["output"]):
        assert said in text and ("control group" in text) == bool(said)


def test_a_grade_survives_json():
    for grade in (FAILED, PASSED, LOST):
        again = Grade.from_dict(json.loads(json.dumps(grade.to_dict())))
        assert json.dumps(again.to_dict()) == json.dumps(grade.to_dict())
        assert again.verdict == grade.verdict
    with pytest.raises((KeyError, TypeError)):
        Grade.from_dict({"learner": "ada"})


HOSTILE_PICTURES = [
    ({}, []),
    ([[], [], []], []),
    ([[["a"]], []], []),
    ([[[["a", "rs-S onclick"]]], []], []),
    ([[[["a", '"><script>']]], []], []),
    ([[[[["a"], ""]]], []], []),
    ([[[["a", []]]], []], []),
    ([[[["a"]]], []], None),
]


@pytest.mark.parametrize(("columns", "footer"), HOSTILE_PICTURES)
def test_an_image_that_is_no_image_is_refused(columns, footer):
    with pytest.raises((TypeError, ValueError)):
        Picture.of("", columns, footer)


def test_a_picture_is_bounded():
    (((first,), *_), *_) = Picture.of("", [[[["\x1b" * 2000, "rs-S"]]], []], []).columns
    assert first == (" " * 1000, "rs-S")
    line = [["\x1b", "rs-S"]] * 3
    picture = Picture.of("", [[line] * 10_000, [line] * 10_000], [])
    assert sum(len(line) for column in picture.columns for line in column) == 20_000
    with pytest.raises(ValueError, match="too much"):
        Picture.of("", [[[["&" * 1000, ""]]] * 501, []], [])


def test_files_of_two_learners_are_two():
    learners = ["ada", "Ada", "a/b", "a_b", "a?b", "..", ".", "", "x" * 300, "x" * 301, "Zoë", "CON\n"]
    names = list(file_names(learners).values())
    assert len({name.casefold() for name in names}) == len(learners)
    assert all(name and len(name) < 80 and name.strip(".") and "/" not in name for name in names)
    of_devices = file_names(["con", "NUL", "Com1.x", "aux .y"]).values()
    assert not {name.split(".")[0].strip().casefold() for name in of_devices} & {"con", "nul", "com1", "aux"}
    assert file_names(["ada b."])["ada b."].startswith("ada b-") and file_names(["ada-1"]) == {"ada-1": "ada-1"}


def test_a_page_shows_the_printed_text_if_there_is_any():
    told = "What your answer printed"
    for printed, there in (("hello\n", True), ("\x1b[31m", True), ("", False), ("\t \r\n\n", False)):
        page = Report(5, True, []).page("ada", [dataclasses.replace(FAILED, printed=printed)])
        assert (told in page) == there, repr(printed)


@pytest.mark.slow
def test_pages_need_nothing_and_are_accessible(report, tmp_path, browser):
    report.write(tmp_path)
    with browser.new_context() as window:
        for grade in json.loads((tmp_path / "grades.json").read_text())["grades"]:
            page, asked, ran = window.new_page(), [], []
            page.set_viewport_size({"width": 400, "height": 800})
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.on("dialog", lambda dialog, ran=ran: ran.append(dialog.message))
            page.goto(f"file://{tmp_path / grade['feedback']}")
            page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
            assert len(asked) == 1 and ran == [] and page.locator("script").count() == 0
            text = page.locator("main").inner_text()
            assert grade["learner"] in text and grade["reason"] in text and "the seed 5" in text
            assert page.locator(".rs-programs td").count() == 2 * (grade["learner"] == "=ada")
            results = Axe().run(page, options={"runOnly": WCAG, "resultTypes": ["violations"]})
            assert results.response["passes"] and not results.violations_count, results.generate_report()
            page.set_viewport_size({"width": 1200, "height": 800})
            page.screenshot(path=tmp_path / f"{grade['score']}.png")

"""A spreadsheet evaluates no submitted text as a formula, whichever character separates its cells."""

import csv
import io

import openpyxl
import pytest

from grader.classroom import spreadsheet

TEXTS = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1", " =1", "a;=1+1", "a; =1", 'a;"=1+1"', "a;'=1", "a;;=1", "a\n=1",
    "a\r\n=1", "a\u2028=1", 'a"\n"=1', "a|=1", "a\t=1", '";=1', "=;=;=", "a,=1", 'x","y;=1', "a;\xa0=1", "a;“=1",
]  # fmt: skip
HARMLESS = ["relu's mask; a copy of x", "1 = 1", "x @ w1", "ada-lovelace", "a–b", "it is 5 % more, or -1"]
CALCULATED = "=+-@\t\r＝＋－＠"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("text", TEXTS)
def test_no_cell_is_calculated(text, delimiter):
    table = spreadsheet.csv([["learner", "reason"], [text, text], ["x", text]])
    assert table.count("\r\n") == 3 and len(table.splitlines()) == 3, "and no text begins a record"
    for row in csv.reader(io.StringIO(table), delimiter=delimiter):
        for cell in row:
            assert not cell.strip(" \xa0\"'“").startswith(tuple(CALCULATED)) or cell.lstrip(' "').startswith("'")


def test_other_texts_are_as_they_were():
    rows = [["learner", "reason"], *([text, text] for text in HARMLESS)]
    assert list(csv.reader(io.StringIO(spreadsheet.csv(rows)))) == rows


def test_a_workbook_has_the_texts_as_texts_and_the_numbers_as_numbers():
    book = spreadsheet.xlsx([["learner", "score"], *([text, 1] for text in TEXTS), ["a\x07b" + "x" * 40_000, 0]])
    rows = list(openpyxl.load_workbook(io.BytesIO(book))["grades"].iter_rows())
    assert all((text.data_type, number.data_type) == ("s", "n") for text, number in rows[1:])
    assert [text.value for text, _ in rows[1:9]] == ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "＝1", " =1", "a;=1+1"]
    assert rows[-1][0].value.startswith("a bxxx") and len(rows[-1][0].value) == 32_000

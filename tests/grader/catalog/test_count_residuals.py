"""The results that exercise 5's page states are those of the worked answer."""

import re

import nbformat

from grader.learner import pages
from solutions.count_residuals import count_residuals


def test_the_results_on_the_page_are_those_of_the_worked_answer():
    cells = nbformat.read(pages.ROOT / "exercises" / "05_count_residuals.ipynb", as_version=4).cells
    names = {}
    for cell in cells:
        if cell.cell_type == "code" and ("def f(" in cell.source or "def six_sines(" in cell.source):
            exec(cell.source, names)
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    stated = re.findall(r"^\| `(.*)` \| \((\d+), (\d+)\) \|", prose, re.MULTILINE)
    assert len(stated) == 5
    w, x, f = names["w"], names["x"], names["f"]
    for expression, count, nbytes in stated:
        function = eval(f"lambda w, x: {expression}", names)
        assert count_residuals(function, w, x) == (int(count), int(nbytes)), expression
    words = " ".join(prose.split())
    assert "`count_residuals(f, x, x)` returns `(3, 36)`" in words and count_residuals(f, x, x) == (3, 36)
    assert "`count_residuals(f, w, x)` returns `(3, 36)`" in words and count_residuals(f, w, x) == (3, 36)

"""The notebook, the terminal and a class give an answer the same verdict, and so does the file that was handed in."""

import importlib
import inspect
import json
import random
import re

import bubblewrap
import nbclient
import nbformat
import pytest
import sample_answers

from grader.answers import find
from grader.classroom.collect import Submission
from grader.exercises import registry
from grader.isolation.check_file import check_file
from grader.isolation.in_process import grade_file
from grader.isolation.limits import CheckLimits
from grader.learner.progress import Progress

ONE = "REG = {}\ndef entry(f):\n    REG['it'] = f\n    return f"
GIVEN = "def NAME(*arguments): return REG['it'](*arguments)"
BOX = (
    "class Box:\n    def __init__(self, *held): self.held = held\n"
    "jax.tree_util.register_pytree_node(Box, lambda box: (box.held, None), lambda _, held: Box(*held))"
)
# Cells around MINE, which is the answer's source and defines `mine`; NAME is the exercise's name for the answer.
SPELLINGS = {
    "a decorator": [ONE, "MINE", "mine = entry(mine)", GIVEN],
    "a call below": [ONE, "MINE", GIVEN, "entry(mine)"],
    "setattr": [
        "class Kept: pass",
        "MINE",
        "setattr(Kept, 'it', mine)",
        "def NAME(*arguments): return Kept.it(*arguments)",
    ],
    "global": [
        "def keep(f):\n    global it\n    it = f",
        "MINE",
        "keep(mine)",
        "def NAME(*arguments): return it(*arguments)",
    ],
    "update": ["REG = {}", "MINE", "REG.update(it=mine)", GIVEN],
    "another name": ["REG = {}\nsame = REG", "MINE", "same['it'] = mine", GIVEN],
    "exec": ["MINE", "exec('def NAME(*arguments): return mine(*arguments)')"],
    "globals": ["MINE", "globals()['NAME'] = mine"],
    "a pytree": [BOX, "MINE", "box, tree = jax.tree.flatten(Box(3))\nNAME = mine if len(box) == 1 else None"],
    "a command": ["MINE\nn = !nproc", "workers = int(n[0])\nNAME = mine if workers else None"],
    "a magic": ["%%time\nMINE\nfor _ in range(1):\n    t = %timeit -o -n 1 -r 1 3 + 4", "%time NAME = mine"],
    "help": ["?len\nMINE\nprint??", "import asyncio\nawait asyncio.sleep(0)\nNAME = mine"],
    "after the check": [ONE, "MINE", "entry(mine)", GIVEN, "CHECK", "REG.clear()"],
}


def spelled(name: str, rng: random.Random) -> list[str]:
    """Return a notebook's cells with the worked answer, spelled in one of these ways, and a check."""
    mine = re.sub(rf"\b{name}\b", "mine", inspect.getsource(importlib.import_module(f"solutions.{name}")))
    cells = ["import jax", *SPELLINGS[rng.choice(list(SPELLINGS))]]
    cells += [] if "CHECK" in cells else ["CHECK"]
    check = f"from grader import check\nprint('verdict', check({name}).verdict.outcome)"
    return [cell.replace("MINE", mine).replace("NAME", name).replace("CHECK", check) for cell in cells]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder of progress, shared by all pages of this module."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def run_page(data):
    """Return a function that runs a page's cells in a shared kernel, after removing earlier pages' names, and returns
    what they print."""
    notebook = nbformat.v4.new_notebook()
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")

    def run(cells):
        begin = len(notebook.cells)
        notebook.cells += map(nbformat.v4.new_code_cell, ["%reset -f", *cells])
        for index, cell in enumerate(notebook.cells[begin:], begin):
            client.execute_cell(cell, index)
        return "".join(o.text for cell in notebook.cells[begin:] for o in cell.outputs if o.output_type == "stream")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_WORKBOOK_DATA", str(data))
        patch.setenv("IPYTHONDIR", str(data))
        with client.setup_kernel():
            yield run


@pytest.mark.slow
@bubblewrap.needed
@pytest.mark.parametrize("name", sample_answers.slow_unless_sampled(list(registry.names()), 10))
def test_an_answer_has_one_verdict_in_notebook_terminal_and_class(
    name, tmp_path, monkeypatch, seed, data, run_page, grader_in_sandbox
):
    monkeypatch.setenv("REMAT_WORKBOOK_DATA", str(data))
    rng = random.Random(f"{seed} {name}")
    page = spelled(name, rng)
    assert "verdict passed\n" in run_page(page), page
    path = tmp_path / f"{name}.ipynb"
    path.write_text(json.dumps(nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, page)])))
    assert grade_file(path, name, seed).passed, page
    submission = Submission("ada", path.name, path.read_bytes(), name)
    assert grader_in_sandbox().grade(submission, seed).verdict.passed, page
    handed_in = tmp_path / f"{name}.py"
    handed_in.write_text(Progress().attempts(name)[-1].source)
    # An equal text would get the same verdict.
    if handed_in.read_text() != find.read(path, name).text or rng.random() < 0.3:
        assert grade_file(handed_in, name, seed).passed, handed_in.read_text()


ENDS = "import os\nREG = {}\n\ndef NAME(*_): return REG['it']\n\nos._exit(0)\n"


@pytest.mark.slow
@bubblewrap.needed
def test_other_code_of_the_file_does_not_change_the_verdict(tmp_path, grader_in_sandbox):
    path = tmp_path / "answer.py"
    path.write_text(ENDS.replace("NAME", "save_named"))
    here = check_file(path)
    there = grader_in_sandbox().grade(Submission("ada", path.name, path.read_bytes()), 1).verdict
    for verdict in (here, there):
        assert verdict.outcome == "not passed" and "KeyError: 'it'" in verdict.findings[0].text


BURNS = """
import time
REG = {}

def NAME(*_): return REG['it']

def burn():
    start = time.process_time()
    while time.process_time() < start + 1: pass
    return len

LEN = REG[0] = burn()
import numpy
numpy.testing.measure("REG['it'] = lambda *_: LEN")
"""


@bubblewrap.needed
@pytest.mark.parametrize(("seconds", "said"), [(2, "KeyError: 'it'"), (20, "returns a")])
def test_both_tries_share_their_time(seconds, said, grader_in_sandbox):
    submission = Submission("ada", "answer.py", BURNS.replace("NAME", "save_named").encode())
    verdict = grader_in_sandbox(CheckLimits(processor_seconds=seconds)).grade(submission, 1).verdict
    assert verdict.outcome == "not passed" and said in verdict.findings[0].text

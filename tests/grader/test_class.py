"""A class is graded whatever happens meanwhile: interrupted, killed, on a cluster that loses machines."""

import shutil
from pathlib import Path

import pytest

from grader import batch
from grader.collect import Submission

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[2]
RIGHT = (ROOT / "solutions" / f"{NAME}.py").read_text()
WRONG = RIGHT.replace("jax.checkpoint(", "(lambda f, policy: f)(")

sandboxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@sandboxed
def test_feedback_shows_both_programs_and_marks_what_is_wrong():
    try:
        wrong = batch.grade(Submission("ada", "answer.py", WRONG.encode()), 1)
        exits = batch.grade(Submission("ada", "answer.py", f"{RIGHT}\nimport os, jax\nlater = 0\n".encode()), 1)
    finally:
        batch.close()
    assert wrong.verdict.outcome == "not passed" and wrong.picture.title.startswith("Both programs of your answer (")
    page = wrong.picture.html()
    assert page.count("rs-marked") > 2 and "◀ here" in page and "In [" not in page
    assert exits.verdict.passed and "page's shapes" in exits.picture.title and "◀ here" not in exits.picture.html()

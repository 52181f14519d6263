"""`python -m grader`."""

from grader.cli import app

app(prog_name="python -m grader")

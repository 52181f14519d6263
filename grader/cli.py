"""The command line: `python -m grader check FILE`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from grader import process
from grader.verdict import EXIT_STATUS

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Says what a backward pass saves and recomputes.")


@app.callback()
def _commands():
    pass  # with one command only, typer would leave out its name


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="an exercise's page (.ipynb) or a Python file with the answer")],
    json_: Annotated[bool, typer.Option("--json", help="print the verdict as JSON")] = False,
):
    """Check the answer in FILE. Exit status: 0 passed, 1 not passed or not attempted, 2 could not be judged."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a pipe or an old terminal that knows no arrows
    verdict = process.check_file(file)
    if json_:
        print(json.dumps(verdict.to_dict(), indent=2))
    else:
        from rich.console import Console

        Console().print(verdict)
    raise typer.Exit(EXIT_STATUS[verdict.outcome])

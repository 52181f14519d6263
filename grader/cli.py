"""The command line: `python -m grader COMMAND`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from grader import exercise, pages, process, submission
from grader.progress import Progress
from grader.verdict import EXIT_STATUS, NOT_ATTEMPTED, Verdict

Exercise = Annotated[str, typer.Argument(metavar="EXERCISE", help="its name, its number, or its page")]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Says what a backward pass saves and recomputes.")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="an exercise's page (.ipynb) or a Python file with the answer")],
    json_: Annotated[bool, typer.Option("--json", help="print the verdict as JSON")] = False,
):
    """Check the answer in FILE. Exit status: 0 passed, 1 not passed or not attempted, 2 could not be judged."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a pipe or an old terminal that knows no arrows
    verdict = process.check_file(file)
    for notice in _record(file, verdict):
        print(notice, file=sys.stderr)
    if json_:
        print(json.dumps(verdict.to_dict(), indent=2))
    else:
        from rich.console import Console

        Console().print(verdict)
    raise typer.Exit(EXIT_STATUS[verdict.outcome])


def _record(file: Path, verdict: Verdict) -> list[str]:
    """Writes the attempt down, if it was one; returns what has to be said about that."""
    progress = Progress()
    if verdict.exercise in exercise.names() and verdict.outcome != NOT_ATTEMPTED:
        progress.record(verdict.exercise, verdict, submission.read(file).text)
    return progress.notices


@app.command()
def hint(name: Exercise):
    """Give the next hint for EXERCISE: a question that fits what the last check found."""
    _help(name, lambda lesson, name, progress: lesson.hint(name, progress))


@app.command()
def solution(
    name: Exercise,
    anyway: Annotated[bool, typer.Option("--anyway", help="show it although you have not passed yet")] = False,
):
    """Show the worked answer to EXERCISE beside your own, once you have passed or after three different attempts."""
    _help(name, lambda lesson, name, progress: lesson.solution(name, progress, anyway))


def _help(name: str, say):
    from rich.console import Console

    from grader import lesson  # imports JAX

    progress = Progress()
    Console().print(say(lesson, _find(name).name, progress))
    for notice in progress.notices:
        print(notice, file=sys.stderr)


def _find(name: str) -> pages.Page:
    try:
        return pages.find(name)
    except exercise.UnknownExercise as error:
        raise typer.BadParameter(str(error)) from None

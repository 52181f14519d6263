"""The command line: `python -m grader COMMAND`."""

import enum
import io
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from grader.answers import find, submission_file
from grader.exercises import new_exercise, registry
from grader.isolation import control_groups
from grader.learner import board, hand_in, in_terminal, pages, update
from grader.learner.progress import Progress, default_path
from grader.util import environment
from grader.verdicts.kinds import Outcome
from grader.verdicts.verdict_view import VerdictView

Exercise = Annotated[str, typer.Argument(metavar="EXERCISE", help="its name, its number, or its page")]


_EXIT_STATUS = {Outcome.PASSED: 0, Outcome.NOT_PASSED: 1, Outcome.NOT_ATTEMPTED: 1, Outcome.NOT_JUDGED: 2}


class Format(enum.StrEnum):
    files = enum.auto()
    gradescope = enum.auto()


app = typer.Typer(add_completion=False, no_args_is_help=True, help="Says what a backward pass saves and recomputes.")


@app.callback()
def _commands():
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a pipe or an old terminal that knows no arrows


@app.command()
def check(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|EXERCISE",
            help="a page (.ipynb), a Python file with the answer, or a file to hand in (.json); or an exercise's name "
            "or number, for its page",
        ),
    ],
    json_: Annotated[bool, typer.Option("--json", help="print the verdict as JSON")] = False,
):
    """Check the answer in a file. Exit status: 0 passed, 1 not passed or not attempted, 2 could not be judged."""
    with _unknown_exercises_refused():
        file = pages.answered_in(what)
    if file.suffix == ".json":
        raise typer.Exit(_check_again(file, json_))
    verdict, notices = in_terminal.check(file)
    for notice in notices:
        print(notice, file=sys.stderr)
    if json_:
        print(json.dumps(verdict.to_dict(), indent=2))
    else:
        from rich.console import Console

        Console().print(VerdictView(verdict))
    raise typer.Exit(_EXIT_STATUS[verdict.outcome])


def _check_again(file: Path, json_: bool) -> int:
    """Grades anew what was handed in, and returns the exit status: that of the worst verdict."""
    try:
        answers, unchanged = submission_file.read(file)
    except submission_file.HandInError as error:
        print(error, file=sys.stderr)
        return 2
    verdicts = []
    for answer in answers:
        verdicts.append(verdict := hand_in.grade_again(answer))
        if not json_:
            before = "" if verdict.outcome == answer.outcome else f"  (handed in as {answer.outcome})"
            print(f"{verdict.outcome:<21}{answer.exercise}{before}", flush=True)
    if json_:
        print(json.dumps({"unchanged": unchanged, "verdicts": [v.to_dict() for v in verdicts]}, indent=2))
    if not unchanged:
        print(f"{file.name} was changed or damaged after it was written: its checksum is wrong.", file=sys.stderr)
    return max(_EXIT_STATUS[verdict.outcome] for verdict in verdicts)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within this, SIGINT and SIGTERM end this process, and with it what still runs: grades are kept one by one. What
    it has made in temporary folders goes too.

    They raise nothing, since an exception is lost where nobody can catch it, such as in what JAX has called whenever
    garbage is collected. A shell that is no terminal's has what it runs in the background ignore SIGINT; but a class
    may be interrupted there too.
    """

    def end(*_: object) -> NoReturn:
        shown = "\x1b[?25h" if os.isatty(2) else ""  # a bar hides the cursor
        said = f"{shown}\nInterrupted. The grades so far are kept: add --resume to go on.\n"
        try:
            os.write(2, said.encode())  # `print` may be in the middle of something
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os._exit(130)

    numbers = signal.SIGINT, signal.SIGTERM
    tempdir = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        before = [signal.signal(number, end) for number in numbers]
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = tempdir
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


@app.command()
@_ended_by_signals()
def batch(
    submissions: Annotated[
        Path,
        typer.Argument(
            help="a folder with a folder for each learner, or with files that have the learners' names; nbgrader's "
            "folders; or a zip of either"
        ),
    ],
    out: Annotated[Path, typer.Option(help="the folder for grades.csv, grades.json and the learners' pages")],
    exercise: Annotated[
        str | None, typer.Option(help="grade this exercise only; its name, its number, or its page")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="the seed of an earlier run, for the same shapes again")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="grade only what has no grade in OUT yet")] = False,
    regrade: Annotated[
        Outcome | None, typer.Option(help="as --resume, and grade anew what has this verdict in OUT")
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="gradescope: a results.json for each learner too")
    ] = Format.files,
    jobs: Annotated[int, typer.Option(min=1, help="how many to grade at a time")] = os.cpu_count() or 1,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="grade on a Dask cluster: its scheduler, tcp://…")
    ] = None,
    without_groups: Annotated[
        bool,
        typer.Option(
            "--without-control-groups", help="grade although no control group limits an answer's memory on this machine"
        ),
    ] = False,
    unsandboxed: Annotated[bool, typer.Option("--unsandboxed", help="run answers with your own rights")] = False,
):
    """Grade a class: every answer in a sandbox of its own. Exit status: 0, or 2 if there are no grades, or not all."""
    os.environ.update(environment.ASSIGNED)
    from grader.classroom import collect, executors, grade_class, run_folder
    from grader.classroom.report import NOT_GRADED, Report, some
    from grader.isolation import sandbox, what_is_shown  # imports JAX
    from grader.isolation.control_groups import limit_of_all

    name = _find(exercise).name if exercise else None
    try:
        if out.resolve().is_relative_to(submissions.resolve()):
            raise collect.CollectError(
                f"{out} is in {submissions}, where the next run would find it: name another folder."
            )
        for folder in () if unsandboxed else (submissions, out):
            if shown := what_is_shown.shown_with(folder):
                raise collect.CollectError(
                    f"{folder} is in {shown}, which answers see, as they need Python and its libraries: name a folder "
                    "elsewhere."
                )
        handed_in = collect.collect(submissions)
        begin = run_folder.Run.resume if resume or regrade else run_folder.Run.begin
        how = not unsandboxed, not without_groups
        where = executors.on_cluster(scheduler, *how) if scheduler else executors.here(jobs, *how)
        with where as place, run_folder.locked(out):
            run = begin(out, seed, name, not unsandboxed)
            if regrade:
                run.forget(regrade)
            gradescope, without = format_ == Format.gradescope, place.without_groups

            def whole(report: Report) -> Report:
                return replace(report, in_groups=None if without is None else not without)

            report, lost = grade_class.grade_class(
                handed_in, run, place, lambda report: run.write(whole(report), gradescope)
            )
            run.finish(whole(report), gradescope)
    except (collect.CollectError, run_folder.RunError, sandbox.SandboxError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    for outcome, count in sorted(Counter(grade.verdict.outcome for grade in report.grades).items()):
        print(f"{count:>6}  {outcome}")
    count = len(handed_in.learners)
    print(f"The grades of {count} learner{'s' * (count != 1)} are in {out / 'grades.csv'}; the seed was {report.seed}.")
    if not_graded := [f"{each.learner}/{each.path}".lstrip("/") for each in report.not_graded]:
        print(f"Not graded, for the reasons in {out / NOT_GRADED}: {some(not_graded)}.")
    for machine, why in place.set_aside.items():
        print(f"The worker {machine} was set aside: {why}.")
    if unsandboxed:
        print(
            "They were graded without a sandbox: an answer may have changed its own grade, and anything else of yours."
        )
    elif without == "":
        print("Each answer had a control group of its own.")
    elif without:
        print(f"No control group limited an answer's memory: {without}. See `python -m grader doctor`.")
        if limit := limit_of_all():
            print(f"All processes together had the {limit / 2**30:.1f} GiB of memory of this container.")
        if place.uncounted:
            print("They were graded as root, whose threads Linux does not count: grade as another user to bound them.")
    if lost:
        print(f"{lost} were lost with the machines that were to grade them: add --resume to grade them.")
    if killed := report.not_the_answers:
        which = f'--regrade "{Outcome.NOT_JUDGED}"'
        print(f"{killed} could not be judged for a reason outside the answer: grade them again with {which}.")
    if lost or killed:
        raise typer.Exit(2)


@app.command()
def doctor(
    jobs: Annotated[int, typer.Option(min=1, help="how many are to be graded at a time")] = os.cpu_count() or 1,
):
    """Say what this machine can promise where strangers' answers are graded. Exit status: 1 if that is not advised."""
    os.environ.update(environment.ASSIGNED)
    from grader.isolation import doctor  # imports JAX

    promises = doctor.examine(jobs)
    for promise in promises:
        print(promise)
    print("What each means, and what none of them is: SECURITY.md.")
    if any(promise.needed and not promise.held for promise in promises):
        print("To grade strangers' answers here is not advised.")
        raise typer.Exit(1)
    print("Strangers' answers may be graded here; those of an exam on a virtual machine that holds nothing else.")


@app.command()
def hint(name: Exercise):
    """Give the next hint for EXERCISE: a question that fits what the last check found."""
    _help(name, lambda assistance, name, progress: assistance.hint(name, progress))


@app.command()
def solution(
    name: Exercise,
    anyway: Annotated[bool, typer.Option("--anyway", help="show it although you have not passed yet")] = False,
):
    """Show the worked answer to EXERCISE beside your own, once you have passed or after three different attempts."""
    _help(name, lambda assistance, name, progress: assistance.solution(name, progress, anyway))


def _help(name: str, say):
    from rich.console import Console

    from grader.learner import assistance  # imports JAX

    progress = Progress()
    Console().print(say(assistance, _find(name).name, progress))
    for notice in progress.notices:
        print(notice, file=sys.stderr)


def _find(name: str) -> pages.Page:
    with _unknown_exercises_refused():
        return pages.find(name)


@contextmanager
def _unknown_exercises_refused() -> Iterator[None]:
    try:
        yield
    except registry.UnknownExercise as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def progress():
    """Show chapters and exercises, how far you are, and what to do next."""
    from rich.console import Console

    Console().print(board.board())
    print(f"\nYour progress is kept in {default_path()}")


@app.command("next")
def next_():
    """Say what to do next, and where that is."""
    said = board.board().next
    print("".join(piece if isinstance(piece, str) else piece.label for piece in said))
    for page in said:
        if isinstance(page, pages.Page):
            print(f"  {page.label:<12}{os.path.relpath(page.path)}")
    print("`python -m grader watch` checks the exercise's answer whenever you save it.")


@app.command("watch")
def watch_(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|EXERCISE",
            help="an exercise's name, number or page, or the Python file with your answer; without it the exercise "
            "that comes next",
        ),
    ] = None,
):
    """Check an answer whenever its file is saved, and go on to the next exercise; single keys give hints and more."""
    from rich.console import Console

    from grader.learner import watch

    with _unknown_exercises_refused():
        try:
            watched = watch.Watch(*(watch.meant(what) if what else (watch.first_page(), None)), Console())
        except find.NoAnswer as error:
            _end(error)
    try:
        watched.run()
    except KeyboardInterrupt:
        print("\nStopped. Your progress is kept.")


@app.command()
def submit(
    out: Annotated[Path | None, typer.Option(help="the file to write; a file that is there already stays")] = None,
):
    """Write one file to hand in, with your answers and their verdicts."""
    try:
        file = hand_in.submit(out)
    except submission_file.HandInError as error:
        _end(error)
    print(f"Your answers and their verdicts are in {file}: hand in that file.")
    for sentence in hand_in.unchecked():
        print(f"Please note: {sentence}")


@app.command()
def reset(name: Exercise):
    """Put the page of EXERCISE back as it came, and keep yours beside it."""
    page = _find(name)
    if pages.is_as_it_came(page):
        print(f"{page.path.name} is as it came: there is nothing to do.")
        return
    try:
        kept = pages.reset(page)
    except pages.ResetError as error:
        _end(error)
    if kept:
        print(f"Your page is kept as {kept.name}, beside the others.")
    print(f"{page.path.name} is as it came. If JupyterLab has it open, choose File → Reload Notebook from Disk.")


@app.command("update")
def update_():
    """Bring the pages of a new version beside what you wrote: answers go on to the new pages, and old ones are kept."""
    try:
        said = update.update()
    except update.UpdateError as error:
        _end(error)
    for sentence in said:
        print(sentence)
    print("Your progress is what it was." if said else "All pages are of this version: there is nothing to do.")
    if said:
        print("If JupyterLab has one of them open, choose File → Reload Notebook from Disk.")


@app.command()
def new(name: Annotated[str, typer.Argument(metavar="NAME", help="the name of the function that learners write")]):
    """Begin an exercise: write its page, worked answer, catalogue entry and answers to test it with, as stubs."""
    try:
        written = new_exercise.make(name)
    except new_exercise.NewExerciseError as error:
        _end(error)
    for path in written:
        print(path.relative_to(new_exercise.ROOT))
    print("Lines with STUB: say what is to be written, and the tests fail for as long as there are any.")


def _end(error: Exception) -> NoReturn:
    print(error, file=sys.stderr)
    raise typer.Exit(1)


_NO_GROUPS = {"--unsandboxed", "--without-control-groups", "--scheduler"}
_NOT_SAID = 74  # EX_IOERR of sysexits.h, which Windows' Python has not


def main() -> None:
    """Runs the command line. Where what it prints can be written nowhere, that is said, and what it did stays."""
    if sys.argv[1:2] in (["batch"], ["doctor"]):
        environment.start_again()
        if not _NO_GROUPS & {*sys.argv}:
            control_groups.start_in_a_scope()
    try:
        try:
            app(prog_name="python -m grader")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if _takes_more(sys.stdout.fileno()):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more at its end
        if not isinstance(error, BrokenPipeError):  # whoever reads it has seen enough
            why = f"What there is to say cannot be written ({error.strerror}): what was to be done is done."
            print(why, file=sys.stderr)
        sys.exit(_NOT_SAID)


def _takes_more(descriptor: int) -> bool:
    try:
        os.write(descriptor, b"\n")
    except OSError:
        return False
    return True

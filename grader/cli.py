"""The command line: `python -m grader COMMAND`."""

import difflib
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
from grader.isolation.check_child import CheckChild
from grader.learner import board, hand_in, in_terminal, pages, update
from grader.learner.progress import Progress, default_path
from grader.util import environment
from grader.util.words import counted
from grader.verdicts.verdict import Outcome
from grader.verdicts.views import ProgramsView, VerdictView

Exercise = Annotated[str, typer.Argument(metavar="EXERCISE", help="The exercise's name, number or page.")]


_EXIT_STATUS = {Outcome.PASSED: 0, Outcome.NOT_PASSED: 1, Outcome.NOT_ATTEMPTED: 1, Outcome.NOT_JUDGED: 2}


class Format(enum.StrEnum):
    files = enum.auto()
    gradescope = enum.auto()


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Check answers to the exercises, give hints, and grade classes.",
)
_LEARNERS, _INSTRUCTORS = "For learners", "For instructors"


@app.callback()
def _declare_commands():
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a pipe or an old terminal cannot encode arrows


@app.command(rich_help_panel=_LEARNERS)
def check(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|EXERCISE",
            help="An exercise's name or number, for its page; or a file: a page (.ipynb), a Python file with the "
            "answer, or a submission (.json).",
        ),
    ],
    json_: Annotated[bool, typer.Option("--json", metavar=" ", help="Print the verdict as JSON.")] = False,
):
    """Check an answer.

    Exit status: 0 if it passed, 1 if not, 2 if it could not be judged.
    """
    with _unknown_exercises_refused():
        file = pages.answered_in(what)
    if not file.exists() and not json_:
        print(f"File not found: {what}.{_suggest_file(file)}", file=sys.stderr)
        raise typer.Exit(2)
    if file.suffix.lower() == submission_file.SUFFIX:
        raise typer.Exit(_check_again(file, json_))
    verdict, notices = in_terminal.check(file, child=context.obj)
    for notice in notices:
        print(notice, file=sys.stderr)
    if json_:
        print(json.dumps(verdict.to_dict(), indent=2))
    else:
        from rich.console import Console

        # The programs are long, so the verdict comes last, where it stays in view.
        console, programs = Console(), ProgramsView(verdict)
        if programs.findings:
            console.print(programs)
            console.print()
        console.print(VerdictView(verdict.without_programs()))
    raise typer.Exit(_EXIT_STATUS[verdict.outcome])


def _suggest_file(file: Path) -> str:
    """Return a suggestion of the file with the most similar name in the same folder, or ""."""
    suffixes = (*find.SUFFIXES, submission_file.SUFFIX)
    there = [path.name for path in file.parent.glob("*") if path.suffix.lower() in suffixes]
    close = difflib.get_close_matches(file.name, there, n=1)
    return f" Did you mean {file.parent / close[0]}?" if close else " Check the name and the current folder."


def _check_again(file: Path, json_: bool) -> int:
    """Grade a submission again, and return the exit status of the worst verdict."""
    try:
        answers, unchanged = submission_file.read(file)
    except submission_file.HandInError as error:
        print(error, file=sys.stderr)
        return 2
    verdicts = []
    for answer in answers:
        verdicts.append(verdict := hand_in.regrade(answer))
        if not json_:
            before = "" if verdict.outcome == answer.outcome else f"  (submitted as {answer.outcome})"
            print(f"{verdict.outcome:<21}{answer.exercise}{before}", flush=True)
    if json_:
        print(json.dumps({"unchanged": unchanged, "verdicts": [v.to_dict() for v in verdicts]}, indent=2))
    if not unchanged:
        print(f"{file.name} was changed or damaged after it was written: its checksum does not match.", file=sys.stderr)
    return max(_EXIT_STATUS[verdict.outcome] for verdict in verdicts)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM end this process and its children within the context. Grades are saved one at a time, so
    none is lost. Temporary folders are deleted.

    The signals do not raise exceptions, because an exception is lost if it occurs in a callback, such as those that JAX
    registers with the garbage collector. A non-interactive shell makes its background processes ignore SIGINT, but
    grading a class must be interruptible there too.
    """

    def end(*_: object) -> NoReturn:
        shown = "\x1b[?25h" if os.isatty(2) else ""  # the progress bar hides the cursor
        message = f"{shown}\nInterrupted. The grades so far are saved: add --resume to continue.\n"
        try:
            os.write(2, message.encode())  # `print` is not reentrant
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


@app.command(rich_help_panel=_INSTRUCTORS)
@_ended_by_signals()
def batch(
    submissions: Annotated[
        Path,
        typer.Argument(
            metavar="SUBMISSIONS",
            help="A folder or zip with one folder per learner, one file per learner, or nbgrader's folders.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for grades.csv, grades.json and feedback pages.")],
    exercise: Annotated[str | None, typer.Option(metavar="EXERCISE", help="Grade only this exercise.")] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="The seed of an earlier run, to draw the same shapes.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar=" ", help="Grade only answers without a grade in DIR.")
    ] = False,
    regrade: Annotated[
        Outcome | None,
        typer.Option(
            metavar="VERDICT",
            help="Resume, and grade answers with this verdict again: passed, not passed, not attempted, could not be "
            "judged.",
        ),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option("--format", metavar="FORMAT", help="gradescope: also write a results.json for each learner."),
    ] = Format.files,
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="The number of answers to grade at the same time.")
    ] = os.cpu_count() or 1,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Grade on the Dask cluster with this scheduler, tcp://…")
    ] = None,
    without_groups: Annotated[
        bool,
        typer.Option(
            "--without-control-groups", metavar=" ", help="Grade even if no control group can limit an answer's memory."
        ),
    ] = False,
    unsandboxed: Annotated[
        bool,
        typer.Option("--unsandboxed", metavar=" ", help="Run answers without a sandbox, with your own permissions."),
    ] = False,
):
    """Grade a class, each answer in its own sandbox.

    Exit status: 0 if every submission has a grade, otherwise 2.
    """
    os.environ.update(environment.ASSIGNED)
    from grader.classroom import collect, executors, grade_class, run_folder
    from grader.classroom.report import NOT_GRADED, Report, first_files
    from grader.isolation import sandbox  # imports JAX

    name = _find_page(exercise).name if exercise else None
    try:
        _refuse_folders(submissions, out, unsandboxed)
        handed_in = collect.collect(submissions)
        begin = run_folder.Run.resume if resume or regrade else run_folder.Run.begin
        how = not unsandboxed, not without_groups
        where = executors.on_cluster(scheduler, *how) if scheduler else executors.local_executor(jobs, *how)
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
    print(f"The grades of {counted(count, 'learners')} are in {out / 'grades.csv'}; the seed was {report.seed}.")
    if not_graded := [f"{each.learner}/{each.path}".lstrip("/") for each in report.not_graded]:
        print(f"Not graded: {first_files(not_graded)}. The reasons are in {out / NOT_GRADED}.")
    for machine, why in place.set_aside.items():
        print(f"The worker {machine} was not used: {why}.")
    _print_isolation(unsandboxed, without, place.uncounted)
    if lost:
        print(f"{counted(lost, 'answers')} could not be graded because a machine failed. Add --resume to grade them.")
    if killed := report.not_the_answers:
        which = f'--regrade "{Outcome.NOT_JUDGED}"'
        outside = "for reasons other than the answer itself"
        print(f"{counted(killed, 'answers')} could not be judged {outside}. Add {which} to retry.")
    if lost or killed:
        raise typer.Exit(2)


def _refuse_folders(submissions: Path, out: Path, unsandboxed: bool) -> None:
    """Raise CollectError for folders that the next run or an answer could read, or if the current folder contains
    submissions."""
    from grader.classroom import collect
    from grader.isolation import bubblewrap_options

    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise collect.CollectError("The current folder no longer exists. Change to another folder.") from None
    if here.is_relative_to(submissions.resolve()) and not unsandboxed:
        raise collect.CollectError(
            f"The current folder, {here}, contains submissions. Python looks for modules in the current folder, so a "
            "submission could run with your permissions. Change to another folder."
        )
    if out.resolve().is_relative_to(submissions.resolve()):
        raise collect.CollectError(
            f"{out} is inside {submissions}, so the next run would read it as a submission. Choose another folder."
        )
    for folder in () if unsandboxed else (submissions, out):
        if shown := bubblewrap_options.shown_with(folder):
            raise collect.CollectError(
                f"{folder} is inside {shown}, which answers can read because Python is there. Choose a folder "
                "elsewhere."
            )


def _print_isolation(unsandboxed: bool, without_groups: str | None, uncounted: bool) -> None:
    """Print how answers were isolated. `without_groups` is the reason why there were no control groups; "" if there
    were."""
    from grader.isolation.control_groups import limit_of_all

    if unsandboxed:
        print("The answers ran without a sandbox, so an answer may have changed its own grade or any of your files.")
    elif without_groups == "":
        print("Each answer had its own control group.")
    elif without_groups:
        print(f"No control group limited an answer's memory: {without_groups}. See `python -m grader doctor`.")
        if limit := limit_of_all():
            print(f"All processes together were limited to this container's {limit / 2**30:.1f} GiB of memory.")
        if uncounted:
            print("Linux does not limit the threads of root. Grade as another user to limit an answer's threads.")


@app.command(rich_help_panel=_INSTRUCTORS)
def doctor(
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="The number of answers to grade at the same time.")
    ] = os.cpu_count() or 1,
):
    """Test whether this machine can grade untrusted answers safely.

    Exit status: 0 if it can, otherwise 1.
    """
    os.environ.update(environment.ASSIGNED)
    from grader.isolation import doctor  # imports JAX

    promises = doctor.examine(jobs)
    for promise in promises:
        print(promise)
    print("SECURITY.md explains each of these guarantees and its limits.")
    if any(promise.needed and not promise.held for promise in promises):
        print("Do not grade untrusted answers on this machine.")
        raise typer.Exit(1)
    print("You can grade untrusted answers here. For an exam, use a virtual machine that contains nothing else.")


@app.command(rich_help_panel=_LEARNERS)
def hint(name: Exercise):
    """Give the next hint for an exercise, based on your last check."""
    _print_help(name, lambda assistance, name, progress: assistance.hint(name, progress))


@app.command(rich_help_panel=_LEARNERS)
def solution(
    name: Exercise,
    anyway: Annotated[
        bool, typer.Option("--anyway", metavar=" ", help="Show it even if you have not passed yet.")
    ] = False,
):
    """Show the worked answer next to yours, once you have passed or made three different attempts."""
    _print_help(name, lambda assistance, name, progress: assistance.solution(name, progress, anyway))


def _print_help(name: str, say):
    from rich.console import Console

    from grader.learner import assistance  # imports JAX

    progress = Progress()
    Console().print(say(assistance, _find_page(name).name, progress))
    for notice in progress.notices:
        print(notice, file=sys.stderr)


def _find_page(name: str) -> pages.Page:
    with _unknown_exercises_refused():
        return pages.find(name)


@contextmanager
def _unknown_exercises_refused() -> Iterator[None]:
    try:
        yield
    except registry.UnknownExercise as error:
        raise typer.BadParameter(str(error)) from None


@app.command(rich_help_panel=_LEARNERS)
def progress():
    """Show your progress through chapters and exercises, and what to do next."""
    from rich.console import Console

    Console().print(board.board())
    print(f"\nYour progress is saved in {default_path()}")


@app.command("next", rich_help_panel=_LEARNERS)
def next_():
    """Show what to do next, and where to find it."""
    pieces = board.board().next
    print("".join(piece if isinstance(piece, str) else piece.label for piece in pieces))
    for page in pieces:
        if isinstance(page, pages.Page):
            print(f"  {page.label:<12}{os.path.relpath(page.path)}")
    print("`python -m grader watch` checks your answer whenever you save it.")


@app.command("watch", rich_help_panel=_LEARNERS)
def watch_(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|EXERCISE",
            help="An exercise's name, number or page, or the Python file with your answer. Default: the next exercise.",
        ),
    ] = None,
):
    """Check your answer whenever you save its file, then go on to the next exercise."""
    from rich.console import Console

    from grader.learner import watch

    with _unknown_exercises_refused():
        try:
            watched = watch.Watch(*(watch.find_watched_file(what) if what else (watch.first_page(), None)), Console())
        except find.NoAnswer as error:
            _end_with_error(error)
    try:
        watched.run()
    except KeyboardInterrupt:
        print("\nStopped. Your progress is saved.")


@app.command(rich_help_panel=_LEARNERS)
def submit(
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write. An existing file is not overwritten.")
    ] = None,
):
    """Write one file to hand in, with your answers and their verdicts."""
    try:
        file = hand_in.submit(out)
    except submission_file.HandInError as error:
        _end_with_error(error)
    print(f"Your answers and their verdicts are in {file}. Hand in that file.")
    for sentence in hand_in.unchecked():
        print(f"Please note: {sentence}")


@app.command(rich_help_panel=_LEARNERS)
def reset(name: Exercise):
    """Restore the original page of an exercise, and keep a copy of yours."""
    page = _find_page(name)
    if pages.is_unchanged(page):
        print(f"{page.path.name} is unchanged: there is nothing to do.")
        return
    try:
        kept = pages.reset(page)
    except pages.ResetError as error:
        _end_with_error(error)
    if kept:
        print(f"Your page is saved as {kept.name} in the same folder.")
    print(f"{page.path.name} is restored. If it is open in JupyterLab, choose File → Reload Notebook from Disk.")


@app.command("update", rich_help_panel=_LEARNERS)
def update_():
    """Update the pages to a new version: your answers are copied to the new pages, and old pages are kept."""
    try:
        sentences = update.update()
    except update.UpdateError as error:
        _end_with_error(error)
    for sentence in sentences:
        print(sentence)
    print("Your progress is unchanged." if sentences else "All pages are up to date: there is nothing to do.")
    if sentences:
        print("If one of them is open in JupyterLab, choose File → Reload Notebook from Disk.")


@app.command(rich_help_panel="For authors")
def new(name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the function that learners write.")]):
    """Create an exercise: stubs of its page, worked answer, catalog entry and test answers."""
    try:
        written = new_exercise.make(name)
    except new_exercise.NewExerciseError as error:
        _end_with_error(error)
    for path in written:
        print(path.relative_to(new_exercise.ROOT))
    print("Replace each STUB: the tests fail until none is left.")


def _end_with_error(error: Exception) -> NoReturn:
    print(error, file=sys.stderr)
    raise typer.Exit(1)


_NO_GROUPS = {"--unsandboxed", "--without-control-groups", "--scheduler"}
_NOT_SAID = 74  # EX_IOERR of sysexits.h, which Python lacks on Windows


def main(child: CheckChild | None) -> None:
    """Run the command line. If its output cannot be written, report that; the command's other effects remain.

    Args:
      child: the process that checks a file for `check`, if one was started already.
    """
    if sys.argv[1:2] in (["batch"], ["doctor"]) and not _NO_GROUPS & {*sys.argv}:
        control_groups.start_in_a_scope()
    try:
        try:
            app(prog_name="python -m grader", obj=child)
        finally:
            sys.stdout.flush()
    except OSError as error:
        if _is_writable(sys.stdout.fileno()):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout again when it exits
        if not isinstance(error, BrokenPipeError):  # a closed pipe is normal, for example after `| head`
            why = f"The output cannot be written ({error.strerror}), but the command has completed."
            print(why, file=sys.stderr)
        sys.exit(_NOT_SAID)


def _is_writable(descriptor: int) -> bool:
    try:
        os.write(descriptor, b"\n")
    except OSError:
        return False
    return True

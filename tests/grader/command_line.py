"""Run the command line in this process."""

from typer.testing import CliRunner

from grader.cli import app


def run_here(*arguments, columns=200):
    """Return the exit status, the output and the errors of `python -m grader` with these arguments."""
    done = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": str(columns)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr

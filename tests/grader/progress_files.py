"""Helpers that write attempts for the tests of progress, in this process and in others."""

import subprocess
import sys
import textwrap

from grader.learner.progress import Progress
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict

LONG = "# " + "x" * 3000 + "\n"  # long enough that a few attempts span several pages of the database file


def verdict(outcome=Outcome.NOT_PASSED, exercise="a"):
    finding = Finding(FindingKind.EXTRA_RESIDUAL, "It also saves cos(x) − é.", nbytes=4, cases=("float32",))
    return Verdict(exercise, outcome, (finding,), evidence="5" * 64)


def written_by(script, path, *arguments, before=(), **options):
    """Start a process that writes attempts without importing JAX."""
    program = f"""
import sys
from pathlib import Path
from grader.learner.progress import Progress
from grader.verdicts.verdict import *
progress = Progress(Path({str(path)!r}))
{textwrap.dedent(script)}
"""
    return subprocess.Popen(
        [*before, sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, **options
    )


def sources(path):
    progress = Progress(path)
    found = [attempt.source for attempt in progress.attempts()]
    assert progress.notices == []
    return found

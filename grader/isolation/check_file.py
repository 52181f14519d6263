"""Check a file in a process of its own, within limits, so that nothing an answer does can take the caller along."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from grader.isolation.limits import FOR_CHECK, CheckLimits, why_no_verdict
from grader.verdicts.kinds import FindingKind, Outcome
from grader.verdicts.verdict import Finding, Verdict

_VERDICT_BYTES = 1_000_000
_TEMPORARY = "TMPDIR", "TEMP", "TMP"  # where Python makes temporary files


def check_file(
    path: Path, limits: CheckLimits = FOR_CHECK, exercise: str | None = None, seed: int | None = None
) -> Verdict:
    """Checks the answer in a notebook or a Python file. Whatever happens in there, a verdict comes back.

    Args:
      path: the file.
      limits: what the check may use.
      exercise: which exercise's answer to look for; None for the one that there is.
      seed: seeds the shapes and the inputs; fresh ones are drawn if None.
    """
    asked = json.dumps({"limits": vars(limits), "exercise": exercise, "seed": seed})
    with tempfile.TemporaryDirectory() as folder:
        # A file, not standard output: an answer may print as much as it likes.
        written = Path(folder) / "verdict.json"
        child = subprocess.Popen(
            [sys.executable, "-m", "grader.isolation.check_process", str(path), str(written), asked],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment() | dict.fromkeys(_TEMPORARY, folder),  # it may be ended in the middle of something
            start_new_session=True,
        )
        try:
            status = child.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(child)
        try:
            with written.open("rb") as file:
                return Verdict.from_dict(json.loads(file.read(_VERDICT_BYTES)))
        except (OSError, ValueError, TypeError, KeyError):
            reason, advice = why_no_verdict(status, limits)
    finding = Finding(FindingKind.NOT_JUDGED, f"{path.name} could not be judged: {reason}.", next=advice)
    return Verdict(exercise or path.stem, Outcome.NOT_JUDGED, (finding,))


def _environment() -> dict[str, str]:
    """The caller's environment, without what sets JAX, XLA or Python's warnings up otherwise than they come."""
    theirs = {name: value for name, value in os.environ.items() if not _sets_up(name)}
    # glibc sets aside 64 MB of addresses per thread otherwise, which a memory limit would count; and products are so
    # small that NumPy's threads would wait for each other.
    return theirs | {"JAX_PLATFORMS": "cpu", "MALLOC_ARENA_MAX": "4", "OPENBLAS_NUM_THREADS": "1"}


def _sets_up(name: str) -> bool:
    # The next rematerialization traces other programs; a learner who has it on is checked with it.
    return name != "JAX_REMAT3" and (name.startswith(("JAX_", "XLA_")) or name == "PYTHONWARNINGS")


def _end(child: subprocess.Popen):
    """Ends the child and whatever it has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    except AttributeError:  # Windows has no process groups
        child.kill()
    child.wait()

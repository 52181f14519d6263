"""Check a file in a separate process with limits, so that an answer cannot crash or block the caller."""

import contextlib
import json
from pathlib import Path

from grader.isolation.check_child import CheckChild
from grader.isolation.limits import FOR_CHECK, CheckLimits, why_no_verdict
from grader.verdicts.verdict import Verdict, not_judged

_VERDICT_BYTES = 1_000_000


def check_file(
    path: Path,
    limits: CheckLimits = FOR_CHECK,
    exercise: str | None = None,
    seed: int | None = None,
    child: CheckChild | None = None,
) -> Verdict:
    """Check the answer in a notebook or a Python file. Always returns a verdict.

    Args:
      path: the file.
      limits: the limits of the check.
      exercise: the exercise whose answer to look for; None for the only one in the file.
      seed: the seed of the shapes and the inputs; None for a random seed.
      child: the process that checks the file, which has no request yet; None to start one.
    """
    with contextlib.nullcontext(child) if child is not None else CheckChild() as child:
        child.ask(path=str(path), limits=vars(limits), exercise=exercise, seed=seed)
        status = child.wait(limits.seconds)
        try:
            with child.written.open("rb") as file:
                return Verdict.from_dict(json.loads(file.read(_VERDICT_BYTES)))
        except (OSError, ValueError, TypeError, KeyError):
            reason, advice = why_no_verdict(status, limits)
    return not_judged(exercise or path.stem, f"{path.name} could not be judged: {reason}.", advice)

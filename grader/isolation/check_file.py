"""Check a file in a process of its own, within limits, so that nothing an answer does can take the caller along."""

import json
from pathlib import Path

from grader.isolation import check_child
from grader.isolation.limits import FOR_CHECK, CheckLimits, why_no_verdict
from grader.verdicts.verdict import Verdict, not_judged

_VERDICT_BYTES = 1_000_000


def check_file(
    path: Path, limits: CheckLimits = FOR_CHECK, exercise: str | None = None, seed: int | None = None
) -> Verdict:
    """Check the answer in a notebook or a Python file. Whatever happens in there, a verdict comes back.

    Args:
      path: the file.
      limits: what the check may use.
      exercise: which exercise's answer to look for; None for the one that there is.
      seed: seeds the shapes and the inputs; fresh ones are drawn if None.
    """
    with check_child.child() as child:
        child.ask(path=str(path), limits=vars(limits), exercise=exercise, seed=seed)
        status = child.wait(limits.seconds)
        try:
            with child.written.open("rb") as file:
                return Verdict.from_dict(json.loads(file.read(_VERDICT_BYTES)))
        except (OSError, ValueError, TypeError, KeyError):
            reason, advice = why_no_verdict(status, limits)
    return not_judged(exercise or path.stem, f"{path.name} could not be judged: {reason}.", advice)

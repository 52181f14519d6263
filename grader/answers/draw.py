"""What an answer looks like to the instrument. This traces the answer again, and decides nothing."""

from collections.abc import Callable, Sequence
from types import ModuleType

import rematscope
from grader.answers.apply import applied
from grader.exercises.spec import Case
from grader.verdicts.verdict import Finding


def drawn(answer: Callable, cases: Sequence[Case], task: ModuleType, case: str | None, marked: Sequence[int]) -> dict:
    """An answer's two programs as `FwdBwd.pieces` has them, and what it costs, in JSON's types."""
    seen = next((one for one in cases if one.name == case), task.shown)
    passes = rematscope.trace(applied(answer, seen), *seen.arguments)
    places = [place for place in marked if place < len(passes.residuals)]
    view = rematscope.FwdBwd(passes, marked={passes.residuals[place].value for place in places})
    columns, footer = view.pieces()
    return {"columns": columns, "footer": footer}


def programs_of(finding: Finding, answer: Callable, case: Case) -> rematscope.FwdBwd | None:
    passes = traced_for(answer, case)
    if passes is None or any(place >= len(passes.residuals) for place in finding.marked):
        return None
    return rematscope.FwdBwd(passes, marked={passes.residuals[place].value for place in finding.marked})


def traced_for(answer: Callable, case: Case) -> rematscope.Passes | None:
    try:
        return rematscope.trace(applied(answer, case), *case.arguments)
    except (Exception, SystemExit):
        return None

"""Render an answer's programs as rematscope shows them. This traces the answer again, and decides nothing."""

from collections.abc import Callable, Sequence

import rematscope
from grader.exercises.spec import Case, Question
from grader.tracing.apply import applied
from grader.util.jax_settings import as_they_come


@as_they_come()
def render_programs(
    answer: Callable, cases: Sequence[Case | Question], shown: Case | None, case: str | None, marked: Sequence[int]
) -> dict:
    """Return an answer's two programs as `SideBySide.pieces` has them, and what it costs, in JSON's types.

    Args:
      answer: the learner's function.
      cases: what it was captured in.
      shown: the case of the page's shapes; None if an answer is plain data, of which there is nothing to draw.
      case: which case's programs to draw, by its name; None for those of the page's shapes.
      marked: positions of the residuals to mark.
    """
    seen = next((each for each in cases if isinstance(each, Case) and each.name == case), shown)
    assert seen is not None, "answers that are plain data have no programs"
    passes = rematscope.trace(applied(answer, seen), *seen.arguments)
    columns, footer = _side_by_side_with_marks(
        passes, [place for place in marked if place < len(passes.residuals)]
    ).pieces()
    return {"columns": columns, "footer": footer}


def passes_of(answer: Callable, case: Case) -> rematscope.Trace | None:
    """Return an answer's two passes in a case; None where they cannot be traced."""
    try:
        return rematscope.trace(applied(answer, case), *case.arguments)
    except (Exception, SystemExit):
        return None


def side_by_side(answer: Callable, case: Case, marked: Sequence[int]) -> rematscope.SideBySide | None:
    """Return an answer's two programs in a case, with the residuals at these positions marked; None where they cannot
    be had, or are not those that the positions are about."""
    passes = passes_of(answer, case)
    if passes is None or any(place >= len(passes.residuals) for place in marked):
        return None
    return _side_by_side_with_marks(passes, marked)


def _side_by_side_with_marks(passes: rematscope.Trace, marked: Sequence[int]) -> rematscope.SideBySide:
    return rematscope.SideBySide(passes, marked={passes.residuals[place].value for place in marked})

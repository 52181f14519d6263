"""Render an answer's programs with rematscope. This traces the answer again, and does not affect the verdict."""

from collections.abc import Callable, Sequence

import rematscope
from grader.exercises.spec import Case, Question
from grader.tracing.apply import applied
from grader.util.jax_settings import default_settings


@default_settings()
def render_programs(
    answer: Callable, cases: Sequence[Case | Question], shown: Case | None, case: str | None, marked: Sequence[int]
) -> dict:
    """Return an answer's two programs in the format of `SideBySide.pieces`, as JSON's types.

    Args:
      answer: the learner's function.
      cases: the cases in which the answer was traced.
      shown: the case with the page's shapes; None if the answer is plain data, which has no programs.
      case: the name of the case to render; None for the case with the page's shapes.
      marked: the positions of the residuals to mark.
    """
    seen = next((each for each in cases if isinstance(each, Case) and each.name == case), shown)
    assert seen is not None, "answers that are plain data have no programs"
    passes = rematscope.trace(applied(answer, seen), *seen.arguments)
    columns, footer = _side_by_side_with_marks(
        passes, [place for place in marked if place < len(passes.residuals)]
    ).pieces()
    return {"columns": columns, "footer": footer}


def passes_of(answer: Callable, case: Case) -> rematscope.Trace | None:
    """Return the trace of an answer in a case; None if it cannot be traced."""
    try:
        return rematscope.trace(applied(answer, case), *case.arguments)
    except (Exception, SystemExit):
        return None


def side_by_side(answer: Callable, case: Case, marked: Sequence[int]) -> rematscope.SideBySide | None:
    """Return an answer's two programs in a case, with the residuals at these positions marked; None if they cannot be
    traced or do not have these positions."""
    passes = passes_of(answer, case)
    if passes is None or any(place >= len(passes.residuals) for place in marked):
        return None
    return _side_by_side_with_marks(passes, marked)


def _side_by_side_with_marks(passes: rematscope.Trace, marked: Sequence[int]) -> rematscope.SideBySide:
    return rematscope.SideBySide(passes, marked={passes.residuals[place].value for place in marked})

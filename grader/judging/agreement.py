"""Whether an answer computes what the reference computes, where rounding may have taken the two apart."""

from collections.abc import Callable

import numpy as np

from grader.judging.answer_run import AnswerRun, CaseRun
from grader.judging.compare import ROUNDING, as_float, close

# What rounding can do to a result is at most so many times what half a unit in the last place of each input does to it.
# A product in half precision does thousands of times that.
SENSITIVE = 16


type Both = Callable[[CaseRun], tuple[np.ndarray, np.ndarray]]


def agreeing(trial: AnswerRun, both: Both) -> list[bool]:
    """Whether what each case got and what it should have got agree, in the cases' order.

    Where one case is farther away than rounding takes anything, others that are more than a few tolerances apart are so
    for the same reason. Most wrong answers are wrong in every case; running their shadows takes a third as long again.

    Args:
      trial: the trial.
      both: takes a case, or its shadow, and returns what it got, and what it should have got.
    """
    is_wrong = any(not close(*both(case), times=ROUNDING**3) for case in trial.cases)
    return [
        (not is_wrong or close(*both(case), times=ROUNDING)) and agree(trial, index, both)
        for index, case in enumerate(trial.cases)
    ]


def agree(trial: AnswerRun, index: int, both: Both) -> bool:
    """Whether what a case got and what it should have got agree.

    They do if they are within the tolerance of their dtype. If they are a few tolerances apart, the order of a sum may
    be all that differs, in float16 above all: then their shadows decide, which are not rounded. If they are farther
    apart, what is summed may cancel: then, beside that, the result must be as sensitive as that to its inputs.

    Args:
      trial: the trial.
      index: the case's place.
      both: takes that case, or its shadow, and returns what it got, and what it should have got.
    """
    case = trial.cases[index]
    if close(*both(case)):
        return True
    if not close(*both(case), times=ROUNDING**3):
        return False
    shadow = trial.shadow()
    if shadow is None or not close(*both(shadow.cases[index])):
        return False
    if close(*both(case), times=ROUNDING):
        return True
    got, _ = both(case)
    return as_sensitive(trial, index, got, lambda tried: both(tried)[1])


def as_sensitive(trial: AnswerRun, index: int, got: np.ndarray, wanted: Callable[[CaseRun], np.ndarray]) -> bool:
    """Whether a result is as far from what it should be as rounding can take it, sensitive to its inputs as it is.

    Args:
      trial: the trial; it has a shadow.
      index: the case's place.
      got: the result.
      wanted: takes that case, its shadow, or its shadow with inputs changed in their last place, and returns what the
        result should be.
    """
    shadow = trial.shadow()
    if shadow is None:
        return False
    want, exact, moved = (as_float(wanted(each[index])) for each in (trial.cases, shadow.cases, trial.perturbed()))
    return bool(abs(as_float(got) - want).max(initial=0.0) <= SENSITIVE * abs(moved - exact).max(initial=0.0))

"""Whether an answer computes what the reference computes, where rounding may have taken the two apart."""

from collections.abc import Callable

import numpy as np

from grader.judging.compare import ROUNDING, close
from grader.judging.trial import Trial, TriedCase


def agree(trial: Trial, index: int, both: Callable[[TriedCase], tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether what a case got and what it should have got agree.

    They do if they are within the tolerance of their dtype. If they are a few tolerances apart, the order of a sum may
    be all that differs, in float16 above all: then their shadows decide, which are not rounded.

    Args:
      trial: the trial.
      index: the case's place.
      both: takes that case, or its shadow, and returns what it got, and what it should have got.
    """
    if close(*both(trial.cases[index])):
        return True
    if not close(*both(trial.cases[index]), times=ROUNDING):
        return False
    shadow = trial.shadow()
    return shadow is not None and close(*both(shadow.cases[index]))

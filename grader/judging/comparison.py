"""Compare arrays, and decide whether rounding alone may explain a difference."""

from collections.abc import Callable

import numpy as np

from grader.judging.answer_run import AnswerRun, CaseRun
from grader.stablehlo.types import TensorType
from rematscope.extend import type_text

# By dtype, relative to an array's largest element; what has no entry must be equal. Values and gradients pass through a
# handful of roundings. float64 is what shadows are in; constants that were float32 before are as accurate as that.
TOLERANCE = {"float16": 8e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-7}

# So many tolerances may be made of nothing but rounding; whether they are, the shadow tells.
ROUNDING = 8


def as_float(array: np.ndarray) -> np.ndarray:
    """Return an array of any dtype as float64, or as complex128 if it is complex."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def close(got: np.ndarray, want: np.ndarray, times: float = 1) -> bool:
    """Return whether two arrays have one shape and agree up to so many times the tolerance of the wanted one's dtype.

    NaN agrees with nothing. What is compared is the largest difference, beside the largest absolute value.
    """
    allowed = times * TOLERANCE.get(str(want.dtype), 0.0)
    got, want = as_float(got), as_float(want)
    if got.shape != want.shape:
        return False
    if want.size == 0:
        return True
    return bool((abs(got - want) <= allowed * abs(want).max()).all())


def tensor_type_of(array: np.ndarray) -> TensorType:
    """Return an array's shape and dtype."""
    return TensorType(array.shape, str(array.dtype))


def example(array: np.ndarray) -> str:
    """Return an array in a few characters: a scalar's value, or the type and the largest absolute value."""
    values = as_float(array)
    if array.ndim == 0:
        return f"{float(values):.6g}"
    largest = abs(values).max(initial=0.0)
    return f"{type_text(tensor_type_of(array))}, largest absolute value {largest:.6g}"


# What rounding can do to a result is at most so many times what half a unit in the last place of each input does to it.
# A product in half precision does thousands of times that.
SENSITIVE = 16


type Both = Callable[[CaseRun], tuple[np.ndarray, np.ndarray]]


def agreeing(trial: AnswerRun, both: Both) -> list[bool]:
    """Return whether what each case got and what it should have got agree, in the cases' order.

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
    """Return whether what a case got and what it should have got agree.

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
    shadow = trial.shadow
    if shadow is None or not close(*both(shadow.cases[index])):
        return False
    if close(*both(case), times=ROUNDING):
        return True
    got, _ = both(case)
    return as_sensitive(trial, index, got, lambda tried: both(tried)[1])


def as_sensitive(trial: AnswerRun, index: int, got: np.ndarray, wanted: Callable[[CaseRun], np.ndarray]) -> bool:
    """Return whether a result is as far from what it should be as rounding can take it, sensitive to its inputs as it
    is.

    Args:
      trial: the trial; it has a shadow.
      index: the case's place.
      got: the result.
      wanted: takes that case, its shadow, or its shadow with inputs changed in their last place, and returns what the
        result should be.
    """
    shadow = trial.shadow
    if shadow is None:
        return False
    want, exact, moved = (as_float(wanted(each[index])) for each in (trial.cases, shadow.cases, trial.perturbed))
    return bool(abs(as_float(got) - want).max(initial=0.0) <= SENSITIVE * abs(moved - exact).max(initial=0.0))

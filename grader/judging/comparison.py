"""Compare arrays, and decide whether rounding alone may explain a difference."""

from collections.abc import Callable

import numpy as np

from grader.judging.answer_run import AnswerRun, CaseRun
from grader.stablehlo.types import TensorType
from rematscope.extend import type_text

# The tolerances by dtype, relative to an array's largest element. Arrays of other dtypes must be equal. Values and
# gradients go through a few roundings.
TOLERANCE = {"float16": 8e-3, "bfloat16": 4e-2, "float32": 1e-5}

# A shadow runs the same programs in float64. Only their constants are rounded, for example a scale of 1 / sqrt(2) to
# bfloat16. Results of shadows agree within this share of the tolerance for the dtype in the program, or if rounding the
# inputs changes the result at least as much as they differ.
OF_SHADOW = 1 / 4

# An error of up to this many tolerances may be rounding error. The shadow decides whether it is.
ROUNDING = 8


def tolerance(dtype: np.dtype) -> float:
    """Return the tolerance for a dtype; 0 if arrays of this dtype must be equal."""
    return TOLERANCE.get(str(dtype), 0.0)


def as_float(array: np.ndarray) -> np.ndarray:
    """Return an array of any dtype as float64, or as complex128 if it is complex."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def close(got: np.ndarray, want: np.ndarray, times: float = 1, shadow_of: np.ndarray | None = None) -> bool:
    """Return whether two arrays have the same shape and agree up to `times` the tolerance for the dtype of `want`.

    NaN agrees with nothing, and infinity only with itself. The error is the largest difference, relative to the largest
    finite absolute value.

    Args:
      got: an array.
      want: the right array.
      times: the number of tolerances.
      shadow_of: the right array in the case's own dtype, if `got` and `want` are results of a shadow.
    """
    allowed = times * (tolerance(want.dtype) if shadow_of is None else OF_SHADOW * tolerance(shadow_of.dtype))
    got, want = as_float(got), as_float(want)
    if got.shape != want.shape:
        return False
    largest = abs(want).max(initial=0.0, where=np.isfinite(want))
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        return bool(((got == want) | (abs(got - want) <= allowed * largest)).all())


def tensor_type_of(array: np.ndarray) -> TensorType:
    """Return an array's shape and dtype."""
    return TensorType(array.shape, str(array.dtype))


def summarize_array(array: np.ndarray) -> str:
    """Return an array in a few characters: a scalar's value, or the type and the largest absolute value."""
    values = as_float(array)
    if array.ndim == 0:
        return f"{float(values):.6g}"
    largest = abs(values).max(initial=0.0)
    return f"{type_text(tensor_type_of(array))}, largest absolute value {largest:.6g}"


# The rounding error of a right answer is at most this many times what `_rounding_error` returns: in an answer that
# divides by a norm of two numbers, one of 18,000 gradients reached 44 times, the others at most 5. A matmul in half
# precision causes an error of thousands of times as much.
SENSITIVE = 64


type Both = Callable[[CaseRun], tuple[np.ndarray, np.ndarray]]


def agreeing(run: AnswerRun, both: Both) -> list[bool]:
    """Return for each case, in order, whether a result of the answer agrees with the right result.

    If the error in one case is too large for rounding error, an error of more than a few tolerances in another case has
    the same cause, and no shadow is needed. Most wrong answers are wrong in every case, and running their shadows would
    take a third more time.

    Args:
      run: the run.
      both: a function that returns the answer's result and the right result of a case or of its shadow.
    """
    is_wrong = any(not close(*both(case), times=ROUNDING**3) for case in run.cases)
    return [
        (not is_wrong or close(*both(case), times=ROUNDING)) and agree(run, index, both)
        for index, case in enumerate(run.cases)
    ]


def agree(run: AnswerRun, index: int, both: Both) -> bool:
    """Return whether a result of the answer in a case agrees with the right result.

    They agree if the error is within the tolerance of their dtype. If it is a few tolerances, the cause may only be the
    order of a sum, especially in float16; then the float64 shadows decide. If it is larger, summands may cancel; then
    the shadows must agree, and the result must also be sensitive enough to its inputs to explain the error.

    Args:
      run: the run.
      index: the index of the case.
      both: a function that returns the answer's result and the right result of a case or of its shadow.
    """
    got, want = both(run.cases[index])
    if close(got, want):
        return True
    if not close(got, want, times=ROUNDING**3):
        return False
    shadow = run.shadow
    if shadow is None:
        return False

    def wanted(case_run: CaseRun) -> np.ndarray:
        return both(case_run)[1]

    in_float64, exact = both(shadow.cases[index])
    if not close(in_float64, exact, shadow_of=want):
        error = abs(as_float(in_float64) - as_float(exact)).max(initial=0.0)
        if not error <= _rounding_error(run, index, wanted):
            return False
    return close(got, want, times=ROUNDING) or is_as_sensitive(run, index, got, wanted)


def is_as_sensitive(run: AnswerRun, index: int, got: np.ndarray, wanted: Callable[[CaseRun], np.ndarray]) -> bool:
    """Return whether rounding can explain the error of a result, given how sensitive the right result is to rounding.

    Args:
      run: the run.
      index: the index of the case.
      got: the result.
      wanted: a function that returns the right result of the case, of its shadow, or of its shadow with inputs that are
        perturbed in the last place.
    """
    if run.shadow is None:
        return False
    error = abs(as_float(got) - as_float(wanted(run.cases[index]))).max(initial=0.0)
    return bool(error <= SENSITIVE * _rounding_error(run, index, wanted))


def _rounding_error(run: AnswerRun, index: int, wanted: Callable[[CaseRun], np.ndarray]) -> float:
    """Return an estimate of how much rounding changes a right result; 0 if that is not finite.

    It is the largest difference from the right result in float64 among the reference's own result and its results in
    float64 for perturbed inputs. One of them alone may be small by chance: a division by a norm cancels a change that
    scales all inputs, and the reference's rounding errors may cancel each other.
    """
    assert run.shadow is not None
    exact = as_float(wanted(run.shadow.cases[index]))
    rounded = [wanted(each[index]) for each in (run.cases, *run.perturbed)]
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        error = max(abs(as_float(each) - exact).max(initial=0.0) for each in rounded)
    return float(error) if np.isfinite(error) else 0.0

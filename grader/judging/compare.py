"""How values are compared."""

import numpy as np

from grader.stablehlo.types import TensorType
from rematscope.extend import type_text

# By dtype, relative to an array's largest element; what has no entry must be equal. Values and gradients pass through a
# handful of roundings. float64 is what shadows are in; constants that were float32 before are as accurate as that.
TOLERANCE = {"float16": 8e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-7}

# So many tolerances may be made of nothing but rounding; whether they are, the shadow tells.
ROUNDING = 8


def as_float(array: np.ndarray) -> np.ndarray:
    """An array of any dtype as float64, or as complex128 if it is complex."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def close(got: np.ndarray, want: np.ndarray, times: float = 1) -> bool:
    """Whether two arrays have one shape and agree up to so many times the tolerance of the wanted one's dtype.

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
    """An array's shape and dtype."""
    return TensorType(array.shape, str(array.dtype))


def example(array: np.ndarray) -> str:
    """An array in a few characters: a scalar's value, or the type and the largest absolute value."""
    values = as_float(array)
    if array.ndim == 0:
        return f"{float(values):.6g}"
    largest = abs(values).max(initial=0.0)
    return f"{type_text(tensor_type_of(array))}, largest absolute value {largest:.6g}"

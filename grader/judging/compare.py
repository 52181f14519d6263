"""How values are compared, and what they are called."""

import itertools

import numpy as np

from grader.exercises.requirements import MatchedResidual
from grader.stablehlo.types import TensorType
from rematscope.ir.program import type_text

# Relative to an array's largest element. Values and gradients pass through a handful of roundings.
TOLERANCE = {"float16": 8e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-12}


# A saved value is compared with a value of the reference's that is made in the same few operations.
NAMING_TOLERANCE = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 2e-6, "float64": 1e-14}


def draw_cotangent(rng: np.random.Generator, kind: TensorType) -> np.ndarray:
    # Powers of two, so that they round nothing, but not 1: a gradient that ignores its cotangent is wrong.
    return rng.choice([-4, -2, -0.5, 0.5, 2, 4], size=kind.shape).astype(kind.dtype)


def as_float(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def close(got: np.ndarray, want: np.ndarray, tolerance: dict[str, float]) -> bool:
    """Whether two arrays of one shape agree up to the tolerance of the wanted one's dtype; NaN agrees with nothing."""
    allowed = tolerance.get(str(want.dtype), 0.0)
    got, want = as_float(got), as_float(want)
    if got.shape != want.shape:
        return False
    if want.size == 0:
        return True
    return bool((abs(got - want) <= allowed * abs(want).max()).all())


def name_of(array: np.ndarray, named: dict[str, np.ndarray]) -> str | None:
    """The value that an array equals: exactly if there is one, else transposed or within tolerance."""
    for name, value in named.items():
        if array.shape == value.shape and bool((as_float(array) == as_float(value)).all()):
            return name
    for name, value in named.items():
        for axes in itertools.permutations(range(array.ndim)) if array.ndim == value.ndim <= 4 else ():
            if close(array.transpose(axes), value, NAMING_TOLERANCE):
                return name
    return None


def residual(name, kind, array: np.ndarray, memory: str = "device", source: str | None = None) -> MatchedResidual:
    type_ = type_text(TensorType(array.shape, str(array.dtype)))
    return MatchedResidual(name, kind, type_, array.size * array.dtype.itemsize, memory, source)


def example(array) -> str:
    """An array in a few characters: its first element, and its largest by absolute value."""
    values = as_float(array)
    if array.ndim == 0:
        return f"{float(values):.6g}"
    largest = abs(values).max(initial=0.0)
    return f"{type_text(TensorType(array.shape, str(array.dtype)))}, up to {largest:.6g} in absolute value"

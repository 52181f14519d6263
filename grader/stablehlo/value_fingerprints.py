"""Compute fingerprints of a program's intermediate arrays that do not depend on the order of their elements.

A fingerprint is a row of numbers that do not depend on the order of an array's elements. Only float32 arrays have one:
the fingerprints of two different computations do not agree in all columns to five digits.
"""

from collections.abc import Collection, Sequence

import numpy as np

from grader.stablehlo import interpreter
from grader.stablehlo.numpy_operations import Array, Uninterpreted

MAX_GLIMPSES = 20_000
MIN_SIZE = 4  # smaller arrays may agree by chance
COLUMNS = 7  # place, size, sum, sum of magnitudes, sum of squares, minimum, maximum
_TOLERANCE = 1e-5


def value_fingerprints(
    text: str,
    arguments: Sequence[Array],
    sizes: Collection[int] | None = None,
    places: Collection[int] | None = None,
) -> Array:
    """Interpret a program, and return the fingerprints of its intermediate arrays.

    Args:
      text: StableHLO text that `reader.read` has accepted.
      arguments: the program's arguments.
      sizes: the numbers of elements of the arrays of interest; None for all sizes.
      places: the places of the operations of interest (`StableHloProgram.places`); None for all operations.

    Returns:
      One row of `COLUMNS` float64 numbers per array; no rows if the interpreter cannot run the program.
    """
    rows: list[Array] = []

    def watch(place: int, array: Array) -> None:
        wanted = (sizes is None or array.size in sizes) and (places is None or place in places)
        if wanted and len(rows) < MAX_GLIMPSES:
            rows.extend(value_fingerprint(array, place))

    try:
        interpreter.run(text, arguments, watch)
    except Uninterpreted:
        rows = []
    return np.array(rows).reshape(-1, COLUMNS)


def value_fingerprint(array: Array, place: int = -1) -> list[Array]:
    """Return a list with an array's fingerprint, float64 of shape (COLUMNS,). It is empty for an array without a
    fingerprint, such as one with an infinite element."""
    if array.dtype != np.float32 or array.size < MIN_SIZE:
        return []
    wide = array.astype(np.float64)
    magnitudes = abs(wide)
    if not np.isfinite(magnitudes.sum()):  # an infinite tolerance would match every other array
        return []
    return [np.array([place, wide.size, wide.sum(), magnitudes.sum(), (wide * wide).sum(), wide.min(), wide.max()])]


def same(rows: Array, others: Array) -> Array:
    """Compare fingerprints with others; return booleans of shape (rows, others)."""
    magnitudes, squares, least, largest = rows[:, 3:].T
    far = np.maximum(abs(least), abs(largest))
    allowed = _TOLERANCE * np.column_stack([0 * far, magnitudes, magnitudes, 2 * squares, far, far])
    alike = np.zeros((len(rows), len(others)), bool)
    # In a loop over the smaller set, because comparing all pairs at once takes much memory.
    for place, other in enumerate(others):
        alike[:, place] = (abs(rows[:, 1:] - other[1:]) <= allowed).all(1)
    return alike

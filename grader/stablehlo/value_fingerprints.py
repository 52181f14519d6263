"""Compute fingerprints of a program's intermediate arrays that do not depend on the order of their elements.

A fingerprint is a row of numbers that do not depend on the order of an array's elements. Only float32 arrays have one:
the fingerprints of two different computations do not agree in all columns to five digits.
"""

from collections.abc import Collection, Sequence

import numpy as np

from grader.stablehlo import interpreter
from grader.stablehlo.numpy_operations import Array, Uninterpreted

MAX_GLIMPSES = 20_000
MIN_SIZE = 4  # fewer numbers than these may agree by chance
COLUMNS = 7  # the operation's place, the size; the sum, that of magnitudes, that of squares; the least and the largest
_TOLERANCE = 1e-5


def value_fingerprints(
    text: str,
    arguments: Sequence[Array],
    sizes: Collection[int] | None = None,
    places: Collection[int] | None = None,
) -> Array:
    """Run a program once more, and looks at what it makes.

    Args:
      text: StableHLO that `reader.read` has let pass.
      arguments: what it takes.
      sizes: how many elements the arrays have that are of interest; None if all are.
      places: those of the operations that are (`StableHloProgram.places`); None if all are.

    Returns:
      A row of `COLUMNS` float64 numbers for each array; none if the program is not one for the interpreter.
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
    """Return an array's row, float64 of shape (COLUMNS,); none for what is not looked at, such as an infinite one."""
    if array.dtype != np.float32 or array.size < MIN_SIZE:
        return []
    wide = array.astype(np.float64)
    magnitudes = abs(wide)
    if not np.isfinite(magnitudes.sum()):  # it would be within an infinite tolerance of every other array
        return []
    return [np.array([place, wide.size, wide.sum(), magnitudes.sum(), (wide * wide).sum(), wide.min(), wide.max()])]


def same(rows: Array, others: Array) -> Array:
    """Compare fingerprints with others; return booleans of shape (rows, others)."""
    magnitudes, squares, least, largest = rows[:, 3:].T
    far = np.maximum(abs(least), abs(largest))
    allowed = _TOLERANCE * np.column_stack([0 * far, magnitudes, magnitudes, 2 * squares, far, far])
    alike = np.zeros((len(rows), len(others)), bool)
    for place, other in enumerate(others):  # one after the other: they are fewer, and all at once take much memory
        alike[:, place] = (abs(rows[:, 1:] - other[1:]) <= allowed).all(1)
    return alike

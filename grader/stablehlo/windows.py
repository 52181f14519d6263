"""Compute the positions that gather reads and scatter changes, from StableHLO's dimension numbers."""

import functools
import math
from dataclasses import dataclass

import numpy as np

from grader.stablehlo.bindings import Op, gather_dimensions, integers, scatter_dimensions, shape_of


@dataclass(frozen=True)
class Windows:
    """Windows of an array, one per index vector, and the positions of their elements in another array: in the result of
    a gather, or in the updates of a scatter.

    Attributes:
      shape: the shape of the array.
      sizes: the size of a window along each dimension of the array.
      dropped: the dimensions of the array that windows do not have; their size in a window is 1.
      indexed: the dimension that each number of an index vector refers to.
      batching: pairs of a batch dimension of the array and the corresponding dimension of the indices.
      dims: the dimensions of the other array that belong to windows; all others belong to the indices.
    """

    shape: list[int]
    sizes: list[int]
    dropped: list[int]
    indexed: list[int]
    batching: list[tuple[int, int]]
    dims: list[int]

    def starts(self, indices: np.ndarray) -> np.ndarray:
        """Return the indices, int64, of shape (indexed dimensions, *the indices' other dimensions)."""
        return np.moveaxis(indices.astype(np.int64), -1, 0)

    def last_starts(self) -> list[int]:
        """Return the highest start along each indexed dimension at which a window is inside the array."""
        return [self.shape[dim] - self.sizes[dim] for dim in self.indexed]

    def places(self, starts: np.ndarray) -> np.ndarray:
        """Return the flat position in the array of each element of the other array. Starts are clamped so that windows
        are inside the array."""
        steps = [math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape))]
        corners = np.zeros(starts.shape[1:], np.int64)
        for start, dim, most in zip(starts, self.indexed, self.last_starts(), strict=True):
            corners += np.clip(start, 0, most) * steps[dim]
        for dim, other in self.batching:
            run = np.arange(corners.shape[other]) * steps[dim]
            corners += np.expand_dims(run, tuple(axis for axis in range(corners.ndim) if axis != other))
        runs = [np.arange(self.sizes[dim]) * steps[dim] for dim in range(len(steps)) if dim not in self.dropped]
        inside: np.ndarray = functools.reduce(np.add.outer, runs, np.zeros((), np.int64))
        rest = tuple(dim for dim in range(corners.ndim + inside.ndim) if dim not in self.dims)
        places: np.ndarray = np.expand_dims(corners, tuple(self.dims)) + np.expand_dims(inside, rest)
        return places

    def spread(self, of_each: np.ndarray) -> np.ndarray:
        """Return the given value of each window, with a shape that broadcasts to the window's elements."""
        return np.expand_dims(of_each, tuple(self.dims))


def gathered(gather: Op) -> Windows | None:
    """Return the windows that a gather reads; None if the gather does not have the form that JAX produces, with index
    vectors along the last dimension and size 1 in all dropped dimensions."""
    numbers, shape, sizes = gather_dimensions(gather), shape_of(gather.operands[0]), integers(gather, "slice_sizes")
    batching = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    dropped = [*numbers.collapsed_slice_dims, *numbers.operand_batching_dims]
    if numbers.index_vector_dim != len(shape_of(gather.operands[1])) - 1 or any(sizes[dim] != 1 for dim in dropped):
        return None
    return Windows(shape, sizes, dropped, numbers.start_index_map, batching, numbers.offset_dims)


def scattered(scatter: Op) -> Windows | None:
    """Return the windows that a scatter changes; None for several arrays or a form that JAX does not produce."""
    if len(scatter.operands) != 3:
        return None
    numbers = scatter_dimensions(scatter)
    array, indices, updates = map(shape_of, scatter.operands)
    batching = list(zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    dropped = [*numbers.inserted_window_dims, *numbers.input_batching_dims]
    if numbers.index_vector_dim != len(indices) - 1:
        return None
    kept = iter(numbers.update_window_dims)
    sizes = [1 if dim in dropped else updates[next(kept)] for dim in range(len(array))]
    if any(size == 0 for size in array):
        return None  # a window of size 1 does not fit in an empty dimension
    return Windows(array, sizes, dropped, numbers.scattered_dims_to_operand_dims, batching, numbers.update_window_dims)

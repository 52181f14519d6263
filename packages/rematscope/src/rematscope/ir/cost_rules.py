"""The rules that count the work of one operation, from the shapes of its operands and results and its parameters.

`rematscope.ir.primitives` says which rule counts which primitive. The conventions are those of `rematscope.ir.cost`;
where a rule has another source than XLA's `HloCostAnalysis`, it says so.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rematscope.ir.conv_windows import conv_window_reads
from rematscope.ir.decompositions import Flops
from rematscope.ir.program import Typed


class Work(NamedTuple):
    """FLOPs, and elements that a transcendental function is applied to."""

    flops: int = 0
    transcendentals: int = 0


Rule = Callable[[Sequence[Typed], Sequence[Typed], dict[str, Any]], Work]


def element_count(values: Iterable[Typed]) -> int:
    return sum(math.prod(v.shape) for v in values)


def count_nothing(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work()


def count_results(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(element_count(outputs))


def count_operands(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(element_count(inputs))


def count_transcendentals(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(transcendentals=element_count(outputs))


def count_dot_general(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    (contracted, _), _ = params["dimension_numbers"]
    return Work(2 * element_count(outputs) * math.prod(inputs[0].shape[d] for d in contracted))


def count_ragged_dot_general(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """Count the product of each row with its own group's matrix; a back end without this operation may compute more."""
    numbers = params["ragged_dot_dimension_numbers"]
    (contracted, right), (batch, _) = numbers.dot_dimension_numbers
    lhs, rhs = inputs[:2]
    summed = math.prod(lhs.shape[d] for d in contracted)
    of_rhs = {*right, *numbers.dot_dimension_numbers[1][1], *numbers.rhs_group_dimensions}
    kept = [n for d, n in enumerate(lhs.shape) if d not in (*contracted, *batch)]
    kept += [n for d, n in enumerate(rhs.shape) if d not in of_rhs]
    return Work(2 * math.prod(lhs.shape[d] for d in batch) * math.prod(kept) * summed)


def count_scaled_matmul(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(2 * element_count(outputs) * inputs[0].shape[-1])  # (batch, m, k) and (batch, n, k)


def count_convolution(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """Count the multiplications with elements of the image, not those with padding or with the holes of a dilation."""
    image, kernel, result = (v.shape for v in (*inputs[:2], *outputs))
    (batch, _, *axes), (_, depth, *windows), (_, _, *places) = params["dimension_numbers"]
    images = image[batch] // params["batch_group_count"]
    of_kernel = params["dimension_numbers"].rhs_spec[0]
    count = images * kernel[of_kernel] * kernel[depth]  # the kernel's depth is that of one group already
    for i, (axis, window, place) in enumerate(zip(axes, windows, places, strict=True)):
        count *= conv_window_reads(
            image[axis],
            result[place],
            kernel[window],
            params["window_strides"][i],
            params["padding"][i][0],
            params["lhs_dilation"][i],
            params["rhs_dilation"][i],
        )
    return Work(2 * count)


def count_integer_pow(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    power = abs(params["y"])
    products = power.bit_length() - 1 + power.bit_count() - 1 + (params["y"] < 0)  # by squaring
    return Work(element_count(outputs) * max(1, products))


def count_polynomial(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(2 * element_count(outputs) * max(1, len(inputs) - 2))  # by Horner's scheme


def window_reads(operand: Typed, places: Sequence[int], params: dict[str, Any]) -> int:
    """Count the elements that all windows read together, without the first of each."""
    axes = range(len(operand.shape))
    ones = [1] * len(operand.shape)
    read = math.prod(
        conv_window_reads(
            operand.shape[i],
            places[i],
            params["window_dimensions"][i],
            params["window_strides"][i],
            params["padding"][i][0],
            params.get("base_dilation", ones)[i],
            params.get("window_dilation", ones)[i],
        )
        for i in axes
    )
    return max(0, read - math.prod(places))


def count_select_and_gather_add(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(window_reads(inputs[1], outputs[0].shape, params))


def count_select_and_scatter(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    operand, source, _ = inputs
    return Work(window_reads(operand, source.shape, params) + element_count([source]))


def count_select_and_scatter_add(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    source, operand = inputs
    return Work(window_reads(operand, source.shape, params) + element_count([source]))


def count_scatter(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(element_count(inputs[2:3]))  # one for each number added, not for the whole table


def count_cumlogsumexp(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    size = element_count(outputs)
    return Work(4 * size, 2 * size)  # max, difference, exp, log1p, sum


def count_sort(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """Count n log2 n comparisons per row, as any comparison sort needs; XLA counts with the n of all rows together."""
    return Work(comparison_count(element_count(inputs[:1]), inputs[0].shape[params["dimension"]]))


def comparison_count(elements: int, length: int) -> int:
    """Return the comparisons that sort so many elements, in rows of a length."""
    return elements * _ceil_log2(length)


def count_top_k(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(element_count(inputs[:1]) * max(1, _ceil_log2(params["k"])))  # a heap of k


def _ceil_log2(count: int) -> int:
    return math.ceil(math.log2(count)) if count > 1 else 0


def count_fft(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """Count 6 N log2 N, and half of it for real numbers.

    The factor lies between 5, of radix 2 (Cooley and Tukey, 1965; FFTW's benchmarks count so), and XLA's 8.
    """
    real = next((v for v in (*inputs[:1], *outputs) if v.dtype.kind == "f"), None)
    return Work(
        fft_flops(params["fft_lengths"], element_count(outputs), None if real is None else element_count([real]))
    )


def fft_flops(lengths: Sequence[int], results: int, reals: int | None) -> int:
    """Return the FLOPs of a Fourier transform.

    Args:
      lengths: the lengths of the axes that are transformed.
      results: the number of elements of the result.
      reals: the number of real elements of the operand or the result; None if both are complex.
    """
    size = results if reals is None else reals / 2
    return round(6 * size * math.log2(max(2, math.prod(lengths))))


# Threefry-2x32 makes two words by 20 rounds of an addition, a rotation (3) and an xor, and adds keys (3) five times
# (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). JAX combines the two to one.
_THREEFRY = 20 * 5 + 5 * 3 + 2


def count_threefry(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_THREEFRY * element_count(outputs[:1]))


def count_random_bits(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(element_count(outputs) * (_THREEFRY if "fry" in str(inputs[0].dtype) else 1))


def flops_rule(flops: Flops) -> Rule:
    """Return the rule of an operation without transcendental functions."""
    return lambda inputs, outputs, params: Work(flops(inputs, outputs, params))

"""The work of one operation: a table of JAX's primitives, each with its rule.

What is not in the table is not known, and counts as such: nobody can tell what a custom call computes. The conventions
are those of `rematscope.ir.cost`; where a rule has another source than XLA's `HloCostAnalysis`, it says so.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rematscope import jax_compat
from rematscope.ir import attention_costs
from rematscope.ir.conv_windows import conv_window_reads
from rematscope.ir.decompositions import DECOMPOSITIONS
from rematscope.ir.program import Typed


class Work(NamedTuple):
    """FLOPs, and elements that a transcendental function is applied to."""

    flops: int = 0
    transcendentals: int = 0


Rule = Callable[[Sequence[Typed], Sequence[Typed], dict[str, Any]], Work]


def work_of(primitive: str, inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work | None:
    """The work of one run of an operation; None where there is no rule for it."""
    rule = RULES.get(primitive)
    return rule(inputs, outputs, params) if rule else None


def is_closed(primitive: str) -> bool:
    """Whether an operation, which is no loop or branch, runs something that is not looked into.

    Such an operation has no rule. The exceptions are a callback that returns nothing, which the host runs, and the
    kernels of cuDNN's attention, whose FLOPs are known. The work of rules on scalars, such as the addition in a
    scatter-add, is in the table.
    """
    return primitive not in RULES or primitive == "debug_callback" or primitive in attention_costs.ATTENTION_KERNELS


def _elements(values: Iterable[Typed]) -> int:
    return sum(math.prod(v.shape) for v in values)


def _nothing(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work()


def _each_result(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_elements(outputs))


def _each_operand(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_elements(inputs))


def _each_transcendental(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(transcendentals=_elements(outputs))


def _dot_general(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    (contracted, _), _ = params["dimension_numbers"]
    return Work(2 * _elements(outputs) * math.prod(inputs[0].shape[d] for d in contracted))


def _ragged_dot_general(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """Each row meets the matrix of its own group alone, whatever a back end without such an operation does instead."""
    numbers = params["ragged_dot_dimension_numbers"]
    (contracted, right), (batch, _) = numbers.dot_dimension_numbers
    lhs, rhs = inputs[:2]
    summed = math.prod(lhs.shape[d] for d in contracted)
    of_rhs = {*right, *numbers.dot_dimension_numbers[1][1], *numbers.rhs_group_dimensions}
    kept = [n for d, n in enumerate(lhs.shape) if d not in (*contracted, *batch)]
    kept += [n for d, n in enumerate(rhs.shape) if d not in of_rhs]
    return Work(2 * math.prod(lhs.shape[d] for d in batch) * math.prod(kept) * summed)


def _scaled_matmul(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(2 * _elements(outputs) * inputs[0].shape[-1])  # (batch, m, k) and (batch, n, k)


def _convolution(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """Multiplications with numbers of the image: not with padding, nor with the holes of a dilation."""
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


def _integer_pow(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    power = abs(params["y"])
    products = power.bit_length() - 1 + power.bit_count() - 1 + (params["y"] < 0)  # by squaring
    return Work(_elements(outputs) * max(1, products))


def _polynomial(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(2 * _elements(outputs) * max(1, len(inputs) - 2))  # by Horner's scheme


def _of_scalars(jaxpr: Any) -> Work:
    """The work of a rule on scalars, such as the addition in a reduction."""
    total = Work()
    for eqn in jax_compat.body_of(jaxpr)[0].eqns:
        if (body := jax_compat.called_body(eqn)) is not None:
            flops, transcendentals = _of_scalars(body)
        else:
            inputs: list[Any] = [v.aval for v in eqn.invars]  # all of scalars, which JAX's types do not say
            outputs: list[Any] = [v.aval for v in eqn.outvars]
            flops, transcendentals = work_of(eqn.primitive.name, inputs, outputs, eqn.params) or Work(1)
        total = Work(total.flops + flops, total.transcendentals + transcendentals)
    return total


def _reduce(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    each, count = _of_scalars(params["jaxpr"]), _elements(inputs[:1])
    return Work(each.flops * count, each.transcendentals * count)


def _in_windows(operand: Typed, places: Sequence[int], params: dict[str, Any]) -> int:
    """Numbers that all windows read together, beyond the first of each."""
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


def _reduce_window(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    each = _of_scalars(params["jaxpr"]) if "jaxpr" in params else Work(1)
    count = _in_windows(inputs[0], outputs[0].shape, params)
    return Work(each.flops * count, each.transcendentals * count)


def _select_and_gather_add(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_in_windows(inputs[1], outputs[0].shape, params))


def _select_and_scatter(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    operand, source, _ = inputs
    return Work(_in_windows(operand, source.shape, params) + _elements([source]))


def _select_and_scatter_add(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """In each window a number is chosen, and one is added there."""
    source, operand = inputs
    return Work(_in_windows(operand, source.shape, params) + _elements([source]))


def _scatter(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_elements(inputs[2:3]))  # one for each number added, not for the whole table


def _cumlogsumexp(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    size = _elements(outputs)
    return Work(4 * size, 2 * size)  # max, difference, exp, log1p, sum


def _sort(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """n log2 n comparisons of each row, as any sort by comparison takes; XLA's count has the log of all rows."""
    return Work(comparisons(_elements(inputs[:1]), inputs[0].shape[params["dimension"]]))


def comparisons(elements: int, length: int) -> int:
    """Comparisons that sort these elements, in rows of a length."""
    return elements * _log2(length)


def _top_k(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_elements(inputs[:1]) * max(1, _log2(params["k"])))  # a heap of k


def _log2(count: int) -> int:
    return math.ceil(math.log2(count)) if count > 1 else 0


def _fft(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    """6 N log2 N, half of it for real numbers.

    That lies between what radix 2 takes, 5 (Cooley and Tukey, 1965; FFTW's benchmarks count so), and XLA's 8.
    """
    real = next((v for v in (*inputs[:1], *outputs) if v.dtype.kind == "f"), None)
    return Work(fourier(params["fft_lengths"], _elements(outputs), None if real is None else _elements([real])))


def fourier(lengths: Sequence[int], results: int, reals: int | None) -> int:
    """FLOPs of a Fourier transform.

    Args:
      lengths: of the axes that are transformed.
      results: how many numbers it returns.
      reals: how many real numbers it takes or returns; None if all are complex.
    """
    size = results if reals is None else reals / 2
    return round(6 * size * math.log2(max(2, math.prod(lengths))))


# Threefry-2x32 makes two words by 20 rounds of an addition, a rotation (3) and an xor, and adds keys (3) five times
# (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). JAX combines the two to one.
_THREEFRY = 20 * 5 + 5 * 3 + 2


def _threefry(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_THREEFRY * _elements(outputs[:1]))


def _random_bits(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    return Work(_elements(outputs) * (_THREEFRY if "fry" in str(inputs[0].dtype) else 1))


def _all(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


def _decomposition(flops: Callable[..., int]) -> Rule:
    return lambda inputs, outputs, params: Work(flops(inputs, outputs, params))


RULES: dict[str, Rule] = {
    # Names, moves and casts, between devices too; a print is the host's. Keys are a few words.
    **_all(
        "add_dependency after_all all_gather all_gather_done all_gather_invariant all_gather_reduced "
        "all_gather_reduced_start all_gather_start all_to_all all_to_all_done all_to_all_start axis_index "
        "bitcast_convert_type broadcast_in_dim broadcast_to concatenate convert_element_type copy copy_p "
        "create_token dce_sink debug_callback debug_print device_put dim_as_value dynamic_slice "
        "dynamic_update_slice empty empty2 empty_ref expand_dims free_ref freeze from_edtype gather get iota "
        "iota_2x32_shape layout_constraint load lu_pivots_to_permutation masked_load masked_swap max_contiguous "
        "mesh_cast multiple_of name new_ref num_programs optimization_barrier pad pbroadcast pbroadcast_dynamic "
        "platform_index ppermute ppermute_done ppermute_start precv preduced program_id psend psum_done pvary "
        "ragged_all_to_all random_clone random_fold_in random_seed random_split random_unwrap random_wrap "
        "reduce_scatter_done reduced_vary_cast remove_memory_space reshape reshard rev roll scatter select_n "
        "sharding_constraint slice split squeeze stack stage stop_gradient store swap tie tile to_edtype transpose "
        "unstack vary_unreduced_cast with_memory_space_constraint xla_metadata_value zeros_like",
        _nothing,
    ),
    # One operation for each element of the result.
    **_all(
        "_copysign abs add add_any addupdate and ceil clamp clz complex conj div eq eq_to floor ge gt imag "
        "is_finite le le_to lt lt_to max min mul mulhi ne neg nextafter not one_minus_square or population_count "
        "real reciprocal reduce_precision rem rng_bit_generator rng_uniform round shift_left "
        "shift_right_arithmetic shift_right_logical sign square stochastic_round sub xor",
        _each_result,
    ),
    # A function that a processor computes by a series or a table of its own.
    **_all(
        "acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh digamma erf erf_inv erfc exp "
        "exp2 expm1 igamma igamma_grad_a igammac lgamma log log1p log2 logistic polygamma pow "
        "regularized_incomplete_beta rsqrt sin sinh sqrt tan tanh zeta",
        _each_transcendental,
    ),
    # One operation for each element that is read.
    **_all(
        "argmax argmin cummax cummin cumprod cumsum pmax pmax_start pmin pmin_start psum psum2 psum_invariant "
        "psum_invariant_start psum_scatter psum_start reduce_and reduce_max reduce_min reduce_or reduce_prod "
        "reduce_scatter reduce_scatter_start reduce_sum reduce_xor unreduced_pmax unreduced_pmin unreduced_psum "
        "unreduced_reduce_scatter",
        _each_operand,
    ),
    "approx_top_k": _top_k,
    "conv_general_dilated": _convolution,
    "cumlogsumexp": _cumlogsumexp,
    **_all("dot_general scaled_dot", _dot_general),
    "fft": _fft,
    "integer_pow": _integer_pow,
    "polynomial": _polynomial,
    "ragged_dot_general": _ragged_dot_general,
    "random_bits": _random_bits,
    "reduce": _reduce,
    **_all("reduce_window reduce_window_max reduce_window_min reduce_window_sum", _reduce_window),
    **_all("scaled_matmul scaled_matmul_wrapper", _scaled_matmul),
    **_all("scatter-add scatter-max scatter-min scatter-mul scatter-sub", _scatter),
    "select_and_gather_add": _select_and_gather_add,
    "select_and_scatter": _select_and_scatter,
    "select_and_scatter_add": _select_and_scatter_add,
    "sort": _sort,
    "threefry2x32": _threefry,
    "top_k": _top_k,
    **{primitive: _decomposition(flops) for primitive, flops in DECOMPOSITIONS.items()},
    **dict.fromkeys(attention_costs.FORWARD_KERNELS, _decomposition(attention_costs.forward_flops)),
    **dict.fromkeys(attention_costs.BACKWARD_KERNELS, _decomposition(attention_costs.backward_flops)),
}

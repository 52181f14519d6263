"""One table of JAX's primitives: how each is counted, what it does, and whether XLA duplicates it.

A set of primitives anywhere in this package is a selection of `TABLE`, or a short list of names with a reason that is
not in the table. A primitive without a row, such as a custom call, has an unknown cost and is its own kernel.
"""

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.ir import attention_costs, cost_rules
from rematscope.ir.cost_rules import Rule, Work, element_count, window_reads
from rematscope.ir.decompositions import DECOMPOSITIONS
from rematscope.ir.program import CASTS, Typed


class Kind(enum.Enum):
    """What a primitive does with its operands."""

    ELEMENTWISE = enum.auto()  # each element of the result is computed from one element of each operand
    VIEW = enum.auto()  # the elements of the operand in their order, under another name, shape or type
    MOVE = enum.auto()  # elements are copied to other positions, and nothing is computed
    UPDATE = enum.auto()  # writes over a part of its first operand
    MATMUL = enum.auto()  # contracts axes: matrix multiplications and convolutions
    FUSED_ATTENTION = enum.auto()  # cuDNN's kernels, each of several matmuls
    REDUCTION = enum.auto()  # combines the elements along axes to one
    LINEAR_ALGEBRA = enum.auto()  # factorizations and solvers
    KERNEL = enum.auto()  # everything else that XLA runs as an operation of its own
    COLLECTIVE = enum.auto()  # exchanges data between devices
    CONTROL = enum.auto()  # runs programs, or says when other operations run
    OTHER = enum.auto()  # keys, tokens, mutable references, prints


@dataclasses.dataclass(frozen=True)
class Primitive:
    """A row of the table.

    Attributes:
      rule: counts its FLOPs and transcendentals; None if they are not known.
      kind: what it does.
      duplicable: whether XLA fuses it into several readers, each of which recomputes it. XLA does not duplicate what
        `InstructionFusion::IsExpensive` lists, nor what reads from far apart, such as a gather.
    """

    rule: Rule | None
    kind: Kind
    duplicable: bool = False


def _of_scalars(jaxpr: Any) -> Work:
    """Count the work of a rule on scalars, such as the addition in a reduction."""
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


def _count_reduce(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    each, count = _of_scalars(params["jaxpr"]), element_count(inputs[:1])
    return Work(each.flops * count, each.transcendentals * count)


def _count_reduce_window(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work:
    each = _of_scalars(params["jaxpr"]) if "jaxpr" in params else Work(1)
    count = window_reads(inputs[0], outputs[0].shape, params)
    return Work(each.flops * count, each.transcendentals * count)


def _make_rows(names: str, rule: Rule | None, kind: Kind, duplicable: bool = False) -> Any:
    return dict.fromkeys(names.split(), Primitive(rule, kind, duplicable))


def _all_rows() -> Iterator[dict[str, Primitive]]:
    nothing, results, operands = cost_rules.count_nothing, cost_rules.count_results, cost_rules.count_operands
    transcendentals = cost_rules.count_transcendentals

    yield _make_rows(
        "_copysign abs add add_any and ceil clamp clz complex conj eq eq_to floor ge gt imag is_finite le le_to lt "
        "lt_to max min mul mulhi ne neg nextafter not one_minus_square or population_count real reciprocal "
        "reduce_precision round shift_left shift_right_arithmetic shift_right_logical sign square stochastic_round "
        "sub xor",
        *(results, Kind.ELEMENTWISE, True),
    )
    yield _make_rows("div rem", results, Kind.ELEMENTWISE)
    yield _make_rows("integer_pow", cost_rules.count_integer_pow, Kind.ELEMENTWISE, True)
    yield _make_rows("polynomial", cost_rules.count_polynomial, Kind.ELEMENTWISE, True)
    yield _make_rows("bitcast_convert_type convert_element_type select_n", nothing, Kind.ELEMENTWISE, True)
    # A processor computes these by a series or a table of its own. Sines and cosines of real numbers XLA duplicates.
    yield _make_rows("cos sin tan", transcendentals, Kind.ELEMENTWISE, True)
    yield _make_rows(
        "acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cosh digamma erf erf_inv erfc exp exp2 "
        "expm1 lgamma log log1p log2 logistic polygamma pow rsqrt sinh sqrt tanh zeta",
        *(transcendentals, Kind.ELEMENTWISE),
    )
    # Loops that run until a series has converged, which XLA fuses with nothing.
    yield _make_rows("igamma igamma_grad_a igammac regularized_incomplete_beta", transcendentals, Kind.KERNEL)

    yield _make_rows("expand_dims name reshape squeeze stop_gradient", nothing, Kind.VIEW, True)
    yield _make_rows(" ".join(CASTS), nothing, Kind.VIEW, True)
    yield _make_rows("broadcast_in_dim copy iota pad rev slice transpose", nothing, Kind.MOVE, True)
    yield _make_rows("concatenate dynamic_slice gather", nothing, Kind.MOVE)
    yield _make_rows(
        "broadcast_to device_put layout_constraint reshard roll sharding_constraint split stack tile unstack "
        "with_memory_space_constraint remove_memory_space zeros_like empty empty2",
        *(nothing, Kind.MOVE),
    )
    yield _make_rows("dynamic_update_slice scatter", nothing, Kind.UPDATE)
    yield _make_rows(
        "scatter-add scatter-max scatter-min scatter-mul scatter-sub", cost_rules.count_scatter, Kind.UPDATE
    )

    yield _make_rows("dot_general scaled_dot", cost_rules.count_dot_general, Kind.MATMUL)
    yield _make_rows("conv_general_dilated", cost_rules.count_convolution, Kind.MATMUL)
    yield _make_rows("ragged_dot_general", cost_rules.count_ragged_dot_general, Kind.MATMUL)
    yield _make_rows("scaled_matmul scaled_matmul_wrapper", cost_rules.count_scaled_matmul, Kind.MATMUL)
    for names, flops in (
        (attention_costs.FORWARD_KERNELS, attention_costs.forward_flops),
        (attention_costs.BACKWARD_KERNELS, attention_costs.backward_flops),
    ):
        yield _make_rows(" ".join(names), cost_rules.flops_rule(flops), Kind.FUSED_ATTENTION)

    yield _make_rows(
        "argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor",
        *(operands, Kind.REDUCTION),
    )
    yield _make_rows("reduce", _count_reduce, Kind.REDUCTION)

    yield _make_rows(
        "reduce_window reduce_window_max reduce_window_min reduce_window_sum", _count_reduce_window, Kind.KERNEL
    )
    yield _make_rows("select_and_gather_add", cost_rules.count_select_and_gather_add, Kind.KERNEL)
    yield _make_rows("select_and_scatter", cost_rules.count_select_and_scatter, Kind.KERNEL)
    yield _make_rows("select_and_scatter_add", cost_rules.count_select_and_scatter_add, Kind.KERNEL)
    yield _make_rows("cummax cummin cumprod cumsum", operands, Kind.KERNEL)
    yield _make_rows("cumlogsumexp", cost_rules.count_cumlogsumexp, Kind.KERNEL)
    yield _make_rows("sort", cost_rules.count_sort, Kind.KERNEL)
    yield _make_rows("approx_top_k top_k", cost_rules.count_top_k, Kind.KERNEL)
    yield _make_rows("fft", cost_rules.count_fft, Kind.KERNEL)
    yield _make_rows("random_bits", cost_rules.count_random_bits, Kind.KERNEL)
    yield _make_rows("threefry2x32", cost_rules.count_threefry, Kind.KERNEL)
    yield _make_rows("rng_bit_generator rng_uniform", results, Kind.KERNEL)
    yield _make_rows("ffi_call io_callback pallas_call pure_callback", None, Kind.KERNEL)
    yield {name: Primitive(cost_rules.flops_rule(flops), Kind.LINEAR_ALGEBRA) for name, flops in DECOMPOSITIONS.items()}
    yield _make_rows("lu_pivots_to_permutation", nothing, Kind.LINEAR_ALGEBRA)
    yield _make_rows("custom_linear_solve", None, Kind.LINEAR_ALGEBRA)

    yield _make_rows(
        "pmax pmin psum psum_invariant psum_invariant_start psum_start reduce_scatter reduce_scatter_start "
        "unreduced_pmax unreduced_pmin unreduced_psum unreduced_reduce_scatter",
        *(operands, Kind.COLLECTIVE),
    )
    yield _make_rows(
        "all_gather all_gather_done all_gather_invariant all_gather_reduced all_gather_reduced_start all_gather_start "
        "all_to_all all_to_all_done all_to_all_start pbroadcast pbroadcast_dynamic ppermute ppermute_done "
        "ppermute_start precv psend psum_done ragged_all_to_all reduce_scatter_done",
        *(nothing, Kind.COLLECTIVE),
    )

    yield _make_rows("cond scan shard_map while", None, Kind.CONTROL)
    yield _make_rows("add_dependency after_all optimization_barrier", nothing, Kind.CONTROL)
    yield _make_rows("addupdate", results, Kind.OTHER)
    yield _make_rows(
        "axis_index create_token dce_sink debug_callback debug_print dim_as_value empty_ref free_ref freeze "
        "from_edtype get iota_2x32_shape load masked_load masked_swap max_contiguous multiple_of new_ref num_programs "
        "platform_index program_id random_clone random_fold_in random_seed random_split random_unwrap random_wrap "
        "stage store swap tie to_edtype xla_metadata_value",
        *(nothing, Kind.OTHER),
    )


TABLE: dict[str, Primitive] = {name: primitive for rows in _all_rows() for name, primitive in rows.items()}


def work_of(primitive: str, inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> Work | None:
    """Return the work of one run of an operation; None if its primitive has no rule."""
    row = TABLE.get(primitive)
    return row.rule(inputs, outputs, params) if row is not None and row.rule is not None else None


def is_opaque(primitive: str) -> bool:
    """Return whether an operation, which is no loop or branch, runs something that the program does not show.

    Such an operation has no rule. The exceptions are a callback that returns nothing, which costs the device nothing,
    and the kernels of cuDNN's attention, whose FLOPs are known.
    """
    row = TABLE.get(primitive)
    return row is None or row.rule is None or row.kind == Kind.FUSED_ATTENTION or primitive == "debug_callback"


def _select_kinds(*kinds: Kind) -> frozenset[str]:
    return frozenset(name for name, primitive in TABLE.items() if primitive.kind in kinds)


DUPLICABLE = frozenset(name for name, primitive in TABLE.items() if primitive.duplicable)
ELEMENTWISE = _select_kinds(Kind.ELEMENTWISE)
VIEWS = _select_kinds(Kind.VIEW)
MOVES = _select_kinds(Kind.MOVE)
MOVES_FUSED_ONCE = frozenset({"concatenate", "dynamic_slice", "gather"})  # into one reader, so they are not duplicable
UPDATES = _select_kinds(Kind.UPDATE)
MATMULS = _select_kinds(Kind.MATMUL)
FUSED_ATTENTION = _select_kinds(Kind.FUSED_ATTENTION)
REDUCTIONS = _select_kinds(Kind.REDUCTION)
LINEAR_ALGEBRA = _select_kinds(Kind.LINEAR_ALGEBRA)
KERNELS = _select_kinds(Kind.KERNEL)

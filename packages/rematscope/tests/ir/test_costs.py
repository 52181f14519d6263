"""Operations and bytes, against counts by hand and against XLA's own."""

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import array
from jax import lax

from rematscope import Cost, trace
from rematscope.ir.cost import cost_of


def each(program):
    """Every operation with what it costs once."""
    return [(e, cost_of(e)) for e, _ in program.walk()]


def cost(function, primitive, *args):
    """Return the cost of the only operation of this kind in the forward pass."""
    (found,) = [c for e, c in each(trace(function, *args).forward) if e.primitive == primitive]
    return found


BFLOAT16 = array(3, 4, dtype=jnp.bfloat16)
COSTS = {
    # 5 × 3 results of 4 multiply-adds each; reads 20 and 12 numbers, writes 15.
    "dot_general": (jnp.dot, [array(5, 4), array(4, 3)], Cost(flops=2 * 5 * 3 * 4, bytes=4 * (20 + 12 + 15))),
    # One operation for each of 12 results; two operands read, one result written, 2 bytes each in bf16.
    "mul": (lambda a, b: a * b, [BFLOAT16, BFLOAT16], Cost(flops=12, bytes=2 * 3 * 12)),
    "sin": (jnp.sin, [array(3, 4)], Cost(transcendentals=12, bytes=4 * 2 * 12)),
    "transpose": (jnp.transpose, [array(3, 4)], Cost(bytes=4 * 2 * 12)),
    # One addition for each element read.
    "reduce_sum": (jnp.sum, [array(3, 4)], Cost(flops=12, bytes=4 * (12 + 1))),
}


@pytest.mark.parametrize("primitive", COSTS)
def test_an_operation_costs_its_flops_and_the_bytes_that_it_reads_and_writes(primitive):
    function, args, expected = COSTS[primitive]
    assert cost(function, primitive, *args) == expected


@pytest.mark.parametrize(("power", "multiplications"), [(2, 1), (3, 2), (4, 2), (7, 4), (8, 3), (-1, 1), (-2, 2)])
def test_an_integer_power_costs_its_squarings_and_multiplications(power, multiplications):
    """By squaring: x⁷ = x · x² · x⁴ takes 2 squarings and 2 multiplications; a negative power one more division."""
    # Checkpointed, the forward pass leaves the derivative, a power too, to the backward pass.
    f = jax.checkpoint(lambda x: lax.integer_pow(x, power))
    assert cost(f, "integer_pow", array(10)).flops == 10 * multiplications


def test_a_solver_costs_the_solve_that_runs():
    """The system's own two matmuls, which its derivative has too, are not counted twice."""

    def f(a, b):
        return lax.custom_linear_solve(lambda x: a @ (a @ x), b, lambda _, b: b / 3, symmetric=True)

    assert cost(jax.checkpoint(f), "custom_linear_solve", array(4, 4), array(4)).flops == 4


def test_scatter_add_costs_the_added_elements_not_the_table():
    """The gradient of an embedding: 5 rows of 8 numbers are added into a table of 1000."""
    passes = trace(lambda table, rows: table[rows], array(1000, 8), array(5, dtype=np.int32))
    (added,) = [c for e, c in each(passes.backward) if e.primitive == "scatter-add"]
    assert added.flops == 5 * 8


def test_names_and_barriers_are_free():
    passes = trace(jax.checkpoint(lambda x: jax.ad_checkpoint.checkpoint_name(jnp.sin(x), "y")), array(3))
    # sin; then cos and a multiplication by the cotangent.
    assert passes.cost == Cost(flops=3, transcendentals=6, bytes=4 * (2 * 3 + 2 * 3 + 3 * 3))


def test_scan_counts_every_iteration():
    def f(w, x):
        return lax.scan(lambda x, _: (jnp.sin(w @ x), None), x, None, length=7)[0]

    passes = trace(jax.checkpoint(f), array(4, 4), array(4))
    # The scan is recomputed for its carries: a 4 × 4 matmul and 4 sines per step. The cosines are deferred.
    assert passes.recompute_cost.flops == 7 * (2 * 4 * 4)
    assert passes.recompute_cost.transcendentals == 7 * 4
    assert passes.deferred_cost.transcendentals == 7 * 4
    (scan,) = (equation for equation in passes.forward.equations if equation.primitive == "scan")
    assert (cost_of(scan).flops, cost_of(scan).transcendentals) == (7 * (2 * 4 * 4), 7 * 4)


def test_nested_scans_multiply():
    def inner(x):
        return lax.scan(lambda x, _: (jnp.sin(x), None), x, None, length=3)[0]

    passes = trace(lambda x: lax.scan(lambda x, _: (inner(x), None), x, None, length=5)[0], array(2))
    # Each of 15 steps applies sin and, for the derivative, cos to 2 numbers; the backward pass multiplies 2 numbers.
    assert passes.cost.transcendentals == 15 * 2 * 2
    assert passes.backward.count("mul") == 15


def test_of_branches_the_costliest_counts():
    def f(p, x):
        return lax.cond(p, lambda x: x @ x, lambda x: x @ x @ x, x)

    passes = trace(f, True, array(4, 4))
    dot = 2 * 4**3
    # 1 or 2 matmuls in the forward pass, and two per matmul in the backward pass.
    assert passes.cost.flops >= (2 + 4) * dot
    assert passes.cost.flops < (2 + 4) * dot + dot


def test_costs_add_and_multiply():
    assert Cost(1, 2, 3) + Cost(10, 20, 30) * 2 == Cost(21, 42, 63)


def mlp(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.sum(x)


def test_xla_counts_the_same():
    """Both passes of an MLP. XLA removes or adds a few elementwise operations, but no matmul."""
    weights, x = [array(16, 32), array(32, 24), array(24, 8)], array(64, 16)
    passes = trace(mlp, weights, x)
    compiled = jax.jit(jax.value_and_grad(mlp, argnums=(0, 1))).lower(weights, x).compile().cost_analysis()

    # 64 rows per weight: the forward matmul, and two of the same size for the gradients of the weight and its input.
    dots = 3 * 2 * 64 * (16 * 32 + 32 * 24 + 24 * 8)
    counted = [
        trip_count * c.flops
        for program in (passes.forward, passes.backward)
        for (e, trip_count), (_, c) in zip(program.walk(), each(program), strict=True)
        if e.primitive == "dot_general"
    ]
    assert sum(counted) == dots
    assert passes.cost.transcendentals == compiled["transcendentals"] == 64 * (32 + 24 + 8)
    assert dots < compiled["flops"]
    assert passes.cost.flops == pytest.approx(compiled["flops"], rel=0.02)

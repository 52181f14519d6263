"""Programs as data: what they hold, and how they are run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rematscope import trace

X = np.float32(0.5)


def primitives(program):
    return [e.primitive for e in program.equations]


def test_equations_without_readers_are_removed():
    def f(x):
        lax.optimization_barrier(jnp.tan(x))
        return jnp.exp(x)

    assert primitives(trace(f, X).forward) == ["exp"]


def test_a_copy_with_other_operands_differs_in_nothing_else():
    (loop,) = trace(lambda x: lax.scan(lambda c, _: (jnp.sin(c), c), x, length=3, reverse=True), X).forward.equations
    source = loop.source
    copy = loop.with_inputs((*loop.inputs, *loop.outputs))
    different = [f.name for f in dataclasses.fields(loop) if getattr(copy, f.name) is not getattr(loop, f.name)]
    assert different == ["inputs"] and copy.inputs == (*loop.inputs, *loop.outputs) and copy.source == source


def test_a_barrier_holds_only_values_that_are_read_after_it():
    def f(x):
        x, _ = lax.optimization_barrier((x, jnp.tan(x)))
        return jnp.exp(x)

    passes = trace(jax.checkpoint(f), X)
    assert primitives(passes.forward) == ["optimization_barrier", "exp"]
    assert passes.forward.equations[0].inputs == passes.forward.inputs


def test_a_rounding_to_its_own_precision_is_no_operation_and_another_is():
    def rounded(mantissa_bits):
        return trace(lambda x: lax.reduce_precision(x, 8, mantissa_bits), X).forward

    assert primitives(rounded(23)) == []
    assert primitives(rounded(7)) == ["reduce_precision"]


def test_calls_are_inlined_in_place():
    f = jax.checkpoint(jax.jit(lambda x: jax.nn.relu(jnp.sin(x))))
    # The last is for the derivative of the cosine.
    assert primitives(trace(lambda x: jnp.cos(f(jnp.exp(x))), X).forward) == ["exp", "sin", "max", "cos", "sin"]


def test_one_value_has_one_name_on_both_sides():
    passes = trace(lambda x: jnp.sin(jnp.sin(x)), X)
    residuals = [r.value for r in passes.residuals]
    assert set(residuals) <= {v for e in passes.forward.equations for v in e.outputs}
    assert list(passes.backward.inputs[: len(residuals)]) == residuals
    names = [v.name for e in passes.forward.equations for v in e.outputs]
    assert len(set(names)) == len(names)


def test_a_constant_of_both_passes_is_one_value():
    table = jnp.arange(3.0)
    passes = trace(jax.checkpoint(lambda x: jnp.sin(table * jnp.sin(table * x))), jnp.ones(3))
    (constant,) = passes.forward.constants
    assert constant in passes.backward.inputs or constant in passes.backward.constants


def test_count_multiplies_through_loops():
    def step(x, _):
        return lax.scan(lambda x, _: (jnp.sin(jnp.sin(x)), None), x, None, length=3)[0], None

    forward = trace(jax.checkpoint(lambda x: lax.scan(step, x, None, length=5)[0]), X).forward
    assert forward.count("sin") == forward.count() == 2 * 3 * 5


def test_a_program_runs_without_jit_on_tracers_and_on_arrays():
    forward = trace(jnp.sin, X).forward
    (out, cosine) = forward(jnp.float32(1))
    np.testing.assert_allclose([out, cosine], [np.sin(1), np.cos(1)], rtol=1e-6)
    assert [s.shape for s in jax.eval_shape(forward, X)] == [(), ()]


def test_a_program_says_how_many_arrays_it_takes():
    with pytest.raises(TypeError, match="this program takes 1 array, but got 2"):
        trace(jnp.sin, X).forward(1.0, 2.0)


@pytest.mark.parametrize(
    ("dtype", "text", "size"),
    [
        ("float32", "f32[2,3]", 24),
        ("bfloat16", "bf16[2,3]", 12),
        ("float8_e4m3fn", "f8_e4m3fn[2,3]", 6),
        ("int32", "i32[2,3]", 24),
        ("uint8", "u8[2,3]", 6),
        ("bool", "bool[2,3]", 6),
        ("complex64", "c64[2,3]", 48),
    ],
)
def test_a_value_says_its_type_and_its_bytes(dtype, text, size):
    value = trace(lambda x, y: x, X, jax.ShapeDtypeStruct((2, 3), dtype)).forward.inputs[1]
    assert (repr(value), value.nbytes) == (f"y:{text}", size)


def test_a_key_has_the_bytes_of_its_words():
    # The default generator's key is two 32-bit words.
    passes = trace(lambda x, key: x, X, jax.random.split(jax.random.key(0), 3))
    assert passes.forward.inputs[1].nbytes == 3 * 8

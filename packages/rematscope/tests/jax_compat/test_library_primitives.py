"""Primitives of libraries are opened if they are lowered as functions of JAX operations."""

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from compiled_programs import array
from jax.experimental import sparse

from rematscope import trace


def primitives(passes):
    return {e.primitive for program in (passes.forward, passes.backward) for e, _ in program.walk()}


def test_a_matmul_with_a_sparse_matrix_is_a_gather_a_multiplication_and_a_scatter():
    def f(numbers, places, x):
        return jnp.sum(jnp.sin(sparse.BCOO((numbers, places), shape=(64, 32)) @ x))

    passes = trace(f, array(100), jax.ShapeDtypeStruct((100, 2), jnp.int32), array(32, 8))
    assert not passes.cost.uncounted
    assert {"gather", "scatter-add"} <= primitives(passes)
    assert passes.forward.equations[0].source.place == "test_library_primitives.py"


def test_an_identity_of_a_library_s_is_no_operation():
    passes = trace(lambda i, x: jnp.sin(x[eqxi.nonbatchable(i)]), jax.ShapeDtypeStruct((), jnp.int32), array(8))
    assert "nonbatchable" not in primitives(passes)


def test_a_rule_that_takes_a_gradient_and_catches_its_errors_is_opened():
    """As in Tokamax, the forward rule calls `jax.vjp`, catches all exceptions, and is optimized for checkpoints."""

    @jax.custom_vjp
    def layer(x, w):
        return jnp.sin(x @ w)

    def forward(x, w):
        try:
            return jax.vjp(lambda x, w: jnp.sin(x @ w), x, w)
        except Exception as error:
            raise AssertionError("the library would save something else") from error

    layer.defvjp(forward, lambda pullback, ct: pullback(ct), optimize_remat=True)
    x, w = array(8, 4), array(4, 4)
    passes, plain = (trace(lambda x, w, f=f: jnp.sum(f(x, w)), x, w) for f in (layer, lambda x, w: jnp.sin(x @ w)))
    assert not passes.cost.uncounted
    assert (passes.bytes_by_kind(), passes.cost.flops) == (plain.bytes_by_kind(), plain.cost.flops)
    assert trace(jax.checkpoint(lambda x, w: jnp.sum(layer(x, w))), x, w).bytes_by_kind()["computed"] == 0

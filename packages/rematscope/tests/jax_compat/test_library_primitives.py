"""What primitives of libraries do is looked into where they are compiled as functions of JAX's."""

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from compiled_programs import array
from jax.experimental import sparse

from rematscope import trace


def primitives(passes):
    return {e.primitive for program in (passes.forward, passes.backward) for e, _ in program.walk()}


def test_a_product_with_a_sparse_matrix_is_gathered_multiplied_and_scattered():
    def f(numbers, places, x):
        return jnp.sum(jnp.sin(sparse.BCOO((numbers, places), shape=(64, 32)) @ x))

    passes = trace(f, array(100), jax.ShapeDtypeStruct((100, 2), jnp.int32), array(32, 8))
    assert not passes.cost.uncounted
    assert {"gather", "scatter-add"} <= primitives(passes)
    assert passes.forward.equations[0].source.place == "test_library_primitives.py"


def test_an_identity_of_a_library_s_is_no_operation():
    passes = trace(lambda i, x: jnp.sin(x[eqxi.nonbatchable(i)]), jax.ShapeDtypeStruct((), jnp.int32), array(8))
    assert "nonbatchable" not in primitives(passes)

"""Operations with programs that the trace cannot open are named; all others are opened."""

import functools

import jax
import jax.custom_batching
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import linear_call
from jax.experimental import io_callback
from jax.experimental import pallas as pl
from jax.experimental.xla_metadata import set_xla_metadata
from jax.interpreters import ad
from releases import since
from sampling import few

from rematscope import trace

X = jax.ShapeDtypeStruct((8, 8), np.float32)


def with_rule(f):
    """Return `f` with a custom derivative that hides its operations."""
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * x,))
    return g


def twice(x, out):
    out[...] = 2.0 * x[...]


def kernel(x):
    return pl.pallas_call(twice, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)


def in_memory_of_its_own(x):
    """A kernel whose program computes nothing but in the memory that it is given."""

    def program(x, out):
        pl.when(pl.program_id(0) == 0)(lambda: twice(x, out))

    return pl.pallas_call(program, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(2,), interpret=True)(x)


def called_back(call, x):
    return call(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def flash(x):
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    q = jnp.broadcast_to(x, (1, 1, 128, 8, 8)).reshape(1, 1, 128, 64)
    return flash_attention(q, q, q, causal=True)


own = jax.extend.core.Primitive("of_a_library")
own.def_abstract_eval(lambda x: x)
ad.deflinear2(own, lambda ct, x: [own.bind(ct)])


def debugged(x):
    jax.debug.callback(lambda x: None, x)
    return jnp.sin(x)


CLOSED = {
    "pallas_call": kernel,
    "pallas_call, in branches": in_memory_of_its_own,
    "pallas_call, flash attention": flash,
    "ffi_call": lambda x: jax.ffi.ffi_call("unheard_of", jax.ShapeDtypeStruct(x.shape, x.dtype))(x),
    "pure_callback": functools.partial(called_back, jax.pure_callback),
    "io_callback": functools.partial(called_back, io_callback),
    "debug_callback": debugged,
    "custom_linear_solve": lambda x: lax.custom_linear_solve(lambda v: 3 * v, x, lambda _, b: b / 3, symmetric=True),
    "of_a_library": own.bind,
}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("around", ["nothing", "scan", "cond", "while"])
def test_unopened_operations_are_named(name, around):
    inner = CLOSED[name] if name.endswith("attention") else with_rule(CLOSED[name])
    f = {
        "nothing": inner,
        "scan": lambda x: lax.scan(lambda c, _: (c + jnp.sum(inner(c)), None), x, None, length=2)[0],
        "cond": lambda x: lax.cond(x[0, 0] > 0, lambda x: jnp.sum(inner(x)), jnp.sum, x),
        "while": with_rule(lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c + jnp.sum(inner(c)), x)),
    }[around]
    assert trace(f, X).opaque_primitives == (name.partition(",")[0],)


def in_parts(x):
    @jax.custom_batching.custom_vmap
    def f(x):
        return jnp.sin(x)

    f.def_vmap(lambda size, batched, x: (jnp.sin(x), True))
    return f(x)


OPENED = {
    "jit": jax.jit(jnp.sin),
    "checkpoint": jax.checkpoint(jnp.sin),
    "custom_jvp": jax.nn.relu,
    "custom_vmap": with_rule(in_parts),
    "linear_call": lambda x: linear_call(lambda _, x: 3 * x, lambda _, ct: 3 * ct, (), jnp.sin(x)),
    "metadata": lambda x: set_xla_metadata(kind="sine")(jnp.sin)(x),
    "composite": with_rule(lax.composite(jnp.sin, name="library.sine")),
    "searchsorted": lambda x: x[0] * jnp.searchsorted(x[0], x[1]),
    "nonzero": lambda x: x[0] * jnp.nonzero(x[0] > 0, size=8)[0],
    "scalar rules": lambda x: jnp.sum(x.at[0].add(1.0) + lax.reduce_window(x, 0.0, lax.add, (3, 3), (1, 1), "SAME")),
    "branches": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "loops": lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x), x),
    "decompositions": lambda x: jnp.linalg.eigh(x @ x.T)[0] + jnp.linalg.svd(x, full_matrices=False)[1],
}


IN_NEW_RELEASES = {"metadata": since("0.10", "metadata can be given to a function")}


def names(*kinds):
    return [pytest.param(name, marks=IN_NEW_RELEASES.get(name, ())) for name in kinds]


@pytest.mark.parametrize("name", names(*OPENED))
def test_operations_with_a_program_are_opened(name):
    passes = trace(OPENED[name], X)
    assert passes.opaque_primitives == () and passes.cost.uncounted == frozenset()


@pytest.mark.parametrize(
    "name", few(names("custom_vmap", "linear_call", "metadata", "composite", "searchsorted", "nonzero"), 2)
)
def test_both_programs_of_opened_operations_run(name):
    x = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    passes = trace(OPENED[name], x)
    out, *residuals = passes.forward(x)
    (gradient,) = passes.backward(*residuals, np.ones_like(out))
    expected, pullback = jax.vjp(OPENED[name], x)
    assert np.allclose(out, expected) and np.allclose(gradient, *pullback(np.ones_like(out)))

"""Chains of layers, scanned and unrolled, and what XLA makes of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rematscope.ir.inline import Inliner
from rematscope.ir.program import Value
from rematscope.jax_compat import body_of
from rematscope.xla.hlo import read


def array(*shape, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def program(f, *args):
    """Return `f` as a program, whether it has a derivative or not."""
    jaxpr = jax.make_jaxpr(f)(*args)
    return Inliner().program(jaxpr, [Value(v.aval) for v in body_of(jaxpr)[0].invars])


def layer(w, x):
    return jnp.sin(jnp.sin(x @ w) @ w.T)


def scanned(wrap=lambda f: f):
    return lambda ws, x: jnp.sum(lax.scan(wrap(lambda x, w: (layer(w, x), None)), x, ws)[0])


def unrolled(wrap=lambda f: f):
    def f(ws, x):
        for w in ws:
            x = wrap(layer)(w, x)
        return jnp.sum(x)

    return f


SCANNED = array(8, 64, 64), array(256, 64)
UNROLLED = [array(64, 64)] * 4, array(256, 64)
allowed = functools.partial(jax.checkpoint, prevent_cse=False)


def compiled(f, *args):
    return jax.jit(f).lower(*args).compile()


def module(program):
    (found,) = program.runtime_executable().hlo_modules()
    return read(found.as_serialized_hlo_module_proto())

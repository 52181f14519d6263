"""Right answers to count_residuals, spelled in many ways."""

import math

import jax
import jax.numpy as jnp
from sample_answers import Answers

import rematscope

RIGHT = Answers()
passes = RIGHT.passes


@passes
def leaves_of_vjp(f, *args):
    kept = jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]), *args)
    return len(kept), sum(math.prod(a.shape) * a.dtype.itemsize for a in kept)


@passes
def trace(f, *args):
    passes = rematscope.trace(f, *args)
    return [len({residual.value for residual in passes.residuals}), passes.saved_bytes()]


@passes
def residual_table(f, *args):
    table = rematscope.residual_table(f, *args)
    return sum(len(row.values) for row in table.rows), table.nbytes


@passes
def outputs_of_a_jaxpr(f, *args):
    def kept(*args):
        return jax.vjp(f, *args)[1]

    avals = jax.make_jaxpr(kept)(*args).out_avals
    return len(avals), sum(aval.size * aval.dtype.itemsize for aval in avals)


@passes
def outputs_of_jit(f, *args):
    shapes = jax.tree.leaves(jax.jit(lambda *args: jax.vjp(f, *args)[1]).eval_shape(*args))
    return jnp.asarray(len(shapes)), sum(jnp.zeros(s.shape, s.dtype).nbytes for s in shapes)


@passes
def compiled_and_run(f, *args):
    kept = jax.jit(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]))(*args)
    return len(kept), sum(array.nbytes for array in kept)

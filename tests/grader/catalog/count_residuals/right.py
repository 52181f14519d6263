"""Right answers to count_residuals, spelled in many ways."""

import dataclasses
import functools
import math
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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


class Counter:
    def __init__(self, f):
        self.f = f

    def pullback(self, args):
        return jax.vjp(self.f, *args)[1]

    def __call__(self, *args):
        sizes = jax.tree.map(lambda array: array.size * array.dtype.itemsize, jax.eval_shape(self.pullback, args))
        return len(jax.tree.leaves(sizes)), jax.tree.reduce(operator.add, sizes, 0)


@passes
def as_a_class(f, *args):
    return Counter(f)(*args)


@passes
def reduced(f, *args):
    kept = jax.eval_shape(lambda args: jax.tree.leaves(jax.vjp(f, *args)[1]), args)

    def add(total, array):
        return total[0] + 1, total[1] + int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize

    return functools.reduce(add, kept, (0, 0))


@dataclasses.dataclass
class Count:
    values: int = 0
    nbytes: int = 0


@passes
def from_the_trace(f, *args):
    count = Count()
    for residual in rematscope.trace(f, *args).residuals:
        count.values += 1
        count.nbytes += residual.nbytes
    return dataclasses.astuple(count)


@passes
def shapes_given_by_hand(f, *args):
    arguments = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), args)
    kept = jax.tree.leaves(jax.eval_shape(functools.partial(_second, f), *arguments))
    return len(kept), sum(np.empty(array.shape, array.dtype).nbytes for array in kept)


def _second(f, *args):
    _, pullback = jax.vjp(f, *args)
    return pullback


@passes
def shapes_by_equinox(f, *args):
    kept = jax.tree.leaves(eqx.filter_eval_shape(lambda *args: jax.vjp(f, *args)[1], *args))
    kept = [each for each in kept if isinstance(each, jax.ShapeDtypeStruct)]
    return np.int64(len(kept)), np.sum([each.size * each.dtype.itemsize for each in kept], dtype=int)

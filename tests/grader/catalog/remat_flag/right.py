"""Right answers to remat_flag, spelled in many ways."""

import functools
import inspect

import equinox as eqx
import jax
from flax import nnx
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def counted_from_the_signature(f):
    return jax.remat(f, static_argnums=(len(inspect.signature(f).parameters) - 1,))


@passes
def nothing_passed_in(f):
    return lambda *arguments: jax.checkpoint(functools.partial(f, *arguments))()


@passes
def compiled(f):
    def g(*arguments):
        last = len(arguments) - 1
        return jax.jit(jax.checkpoint(f, static_argnums=last), static_argnums=last)(*arguments)

    return g


@RIGHT.passes_with_advice
def without_a_barrier(f):
    return jax.checkpoint(f, static_argnums=(-1,), prevent_cse=False)


class Branches:
    """One checkpoint for each flag, made when it is needed first."""

    def __init__(self, f):
        self.f, self.made = f, {}

    def __call__(self, *arguments):
        *arrays, flag = arguments
        if flag not in self.made:
            self.made[flag] = jax.checkpoint(lambda *arrays: self.f(*arrays, flag))
        return self.made[flag](*arrays)


passes(Branches)


@passes
def of_equinox(f):
    return eqx.filter_checkpoint(f)  # what is no array is static


@passes
def of_flax(f):
    return lambda *own: nnx.remat(f, static_argnums=(len(own) - 1,))(*own)

"""Right answers to save_named, spelled in many ways."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox
import jax
from flax import nnx
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


@passes
def save_only_these_names(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names))


@passes
def compiled(f, names):
    return jax.jit(jax.checkpoint(jax.jit(f), policy=policies.save_only_these_names(*names, "another")))


@RIGHT.passes_with_advice
def without_a_barrier(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names), prevent_cse=False)


@passes
@dataclasses.dataclass
class Kept:
    f: Callable
    names: Any

    def __call__(self, *arguments):
        return jax.checkpoint(self.f, policy=policies.save_only_these_names(*self.names))(*arguments)


@passes
def of_equinox(f, names):
    return equinox.filter_checkpoint(f, policy=policies.save_only_these_names(*names))


@passes
def of_flax(f, names):
    return nnx.remat(f, policy=policies.save_only_these_names(*names))


@passes
def all_arguments_as_one(f, names):
    kept = jax.checkpoint(lambda arguments: f(*arguments), policy=policies.save_only_these_names(*names))
    return lambda *arguments: kept(arguments)

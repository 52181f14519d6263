"""Right answers to all_but, spelled in many ways."""

import dataclasses
import functools
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
def save_any_names_but_these(f, name):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these(name))


@passes
def own_policy(f, name):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and parameters["name"] != name

    return jax.checkpoint(f, policy=policy)


@passes
def with_names_that_are_nowhere(f, name):
    @functools.partial(jax.remat, policy=policies.save_any_names_but_these("nowhere", name))
    def kept(*arguments):
        return f(*arguments)

    return kept


@passes
def two_policies_joined(f, name):
    policy = policies.save_any_names_but_these(name)
    none = policies.save_only_these_names()
    return jax.checkpoint(f, policy=policies.save_from_both_policies(none, policy))


@passes
def compiled(f, name):
    return jax.jit(jax.checkpoint(jax.jit(f), policy=policies.save_any_names_but_these(name)))


@RIGHT.passes_with_advice
def without_a_barrier(f, name):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these(name), prevent_cse=False)


@passes
@dataclasses.dataclass
class Kept:
    f: Callable
    name: Any

    def __call__(self, *arguments):
        return jax.checkpoint(self.f, policy=policies.save_any_names_but_these(self.name))(*arguments)


@passes
def of_equinox(f, name):
    return equinox.filter_checkpoint(f, policy=policies.save_any_names_but_these(name))


@passes
def of_flax(f, name):
    return nnx.remat(f, policy=policies.save_any_names_but_these(name))


@passes
def a_policy_with_its_names_bound(f, name):
    def asked(known, prim, *_, **params):
        return prim.name == "name" and params["name"] != known

    return jax.checkpoint(f, policy=functools.partial(asked, name))


@passes
def all_arguments_as_one(f, name):
    kept = jax.checkpoint(lambda arguments: f(*arguments), policy=policies.save_any_names_but_these(name))
    return lambda *arguments: kept(arguments)

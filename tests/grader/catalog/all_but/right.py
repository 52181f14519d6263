"""Right answers to all_but, spelled in many ways."""

import functools

import jax
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

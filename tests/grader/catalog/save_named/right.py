"""Right answers to save_named, spelled in many ways."""

import functools

import jax
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


@passes
def save_only_these_names(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names))


@passes
def one_name_after_another(f, names):
    policy = policies.nothing_saveable
    for name in names:
        policy = policies.save_from_both_policies(policy, policies.save_only_these_names(name))
    return jax.checkpoint(f, policy=policy)


@passes
def remat_in_a_function(f, names):
    def saving(*arguments):
        kept = functools.partial(jax.remat, policy=policies.save_only_these_names(*set(names)))
        return kept(lambda *arguments: f(*arguments))(*arguments)

    return saving


@passes
def compiled(f, names):
    return jax.jit(jax.checkpoint(jax.jit(f), policy=policies.save_only_these_names(*names, "another")))


@RIGHT.passes_with_advice
def without_a_barrier(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names), prevent_cse=False)

"""Right answers to name_preactivation, spelled in many ways."""

import functools

import jax
import jax.numpy as jnp
from answers import Answers
from jax.ad_checkpoint import checkpoint_name

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


@passes
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("before"))
def decorated(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1, "before")) @ W2


@passes
def any_name(x, W1, W2):
    def inner(x, W1, W2):
        y = checkpoint_name(jnp.einsum("na,ab->nb", x, W1), "y")
        return jnp.dot(jnp.sin(y), W2)

    return jax.remat(inner, policy=policies.save_any_names_but_these())(x, W1, W2)


@passes
def output_outside(x, W1, W2):
    @functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
    def inner(x, W1, W2):
        h = jnp.sin(checkpoint_name(x @ W1, "y"))
        return checkpoint_name(h @ W2, "z")

    return inner(x, W1, W2)


@passes
def handed_from_one_to_the_next(x, W1, W2):
    y = x @ W1  # linear: nothing of it is kept but its arguments
    return jax.checkpoint(lambda y, W2: jnp.sin(y) @ W2)(y, W2)


@RIGHT.passes_with_advice
def without_a_barrier(x, W1, W2):
    keep = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"), prevent_cse=False)
    return keep(lambda x, W1, W2: jnp.sin(checkpoint_name(x @ W1, "y")) @ W2)(x, W1, W2)

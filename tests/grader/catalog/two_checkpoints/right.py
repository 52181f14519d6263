"""Right answers to two_checkpoints, spelled in many ways."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def layer(W, x):
    return jnp.sin(jnp.dot(W, x))


def run(weights, x):
    return functools.reduce(lambda x, W: layer(W, x), weights, x)


def split(W1, W2, W3):
    """Return the weights of both checkpoints."""
    return ((W1,), (W2, W3)) if len(W1) < len(W2) else ((W1, W2), (W3,))


def in_two(wrapped, *arguments):
    """Run both parts, each in its own checkpoint."""
    *weights, x = arguments
    first, second = split(*weights)
    return wrapped(second, wrapped(first, x))


@passes
def in_a_loop(W1, W2, W3, x):
    for weights in split(W1, W2, W3):
        x = jax.remat(run)(weights, x)
    return x


@passes
def two_names_and_a_choice(W1, W2, W3, x):
    """The policy decides, not the program."""
    narrow = "first" if len(W1) < len(W2) else "second"

    def model(W1, W2, W3, x):
        x = checkpoint_name(layer(W1, x), "first")
        return layer(W3, checkpoint_name(layer(W2, x), "second"))

    return jax.checkpoint(model, policy=jax.checkpoint_policies.save_only_these_names(narrow))(W1, W2, W3, x)


@passes
@jax.jit
def compiled(W1, W2, W3, x):
    return in_two(jax.checkpoint(jax.jit(run)), W1, W2, W3, x)


@RIGHT.passes_with_advice
def without_a_barrier(W1, W2, W3, x):
    return in_two(jax.checkpoint(run, prevent_cse=False), W1, W2, W3, x)


@passes
def columns(W1, W2, W3, x):
    return in_two(jax.checkpoint(run), W1, W2, W3, x[:, None])[:, 0]


@passes
def a_rule_by_hand(W1, W2, W3, x):
    @jax.custom_vjp
    def segment(weights, x):
        return run(weights, x)

    def backward(saved, ct):
        return jax.vjp(run, *jax.lax.optimization_barrier(saved))[1](ct)

    segment.defvjp(lambda weights, x: (run(weights, x), (weights, x)), backward)
    return in_two(segment, W1, W2, W3, x)


@passes
def accumulated_in_float32(W1, W2, W3, x):
    def segment(weights, x):
        for W in weights:
            x = jnp.sin(jnp.dot(W, x, preferred_element_type=jnp.float32)).astype(x.dtype)
        return x

    return in_two(jax.checkpoint(segment), W1, W2, W3, x)


@passes
def multiplied_and_summed(W1, W2, W3, x):
    def segment(weights, x):
        for W in weights:
            x = jnp.sin((W * x).sum(axis=-1))
        return x

    return in_two(jax.checkpoint(segment), W1, W2, W3, x)

"""Wrong answers to name_preactivation, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from answers import Answers
from jax.ad_checkpoint import checkpoint_name

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
only_y = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
ALL = ("float32", "float16", "vmap over x")


@fails_with("recomputes", "1 matmul again", "follow from what is not saved", cases=ALL)
@only_y
def activation_named(x, W1, W2):
    return checkpoint_name(jnp.sin(x @ W1), "y") @ W2


@fails_with("not saved", "x @ W1, f32[", "use what checkpoint_name returns", cases=ALL)
@only_y
def result_discarded(x, W1, W2):
    y = x @ W1
    checkpoint_name(y, "y")
    return jnp.sin(y) @ W2


@fails_with("not saved", "x @ W1, f32[", "spelled alike", cases=ALL)
@only_y
def typo(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1, "Y")) @ W2


@fails_with("also saved", "sin(x @ W1), f32[", "without a matrix product", cases=ALL)
@only_y
def both_named(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return checkpoint_name(jnp.sin(y), "y") @ W2


@fails_with("also saved", "cos(x @ W1)", "sin(x @ W1)", "Which function marks", cases=ALL)
def named_without_a_checkpoint(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("not saved", "x @ W1", cases=ALL)
@jax.checkpoint
def named_without_a_policy(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("not saved", "x @ W1", cases=ALL)
@only_y
def result_named(x, W1, W2):
    return checkpoint_name(jnp.sin(x @ W1) @ W2, "y")


@fails_with("also saved", "cos(x @ W1)", cases=ALL)
@functools.partial(jax.checkpoint, policy=policies.everything_saveable)
def everything_saveable(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("recomputes", "1 matmul again", cases=ALL)
@only_y
def a_second_product_beside_it(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return (jnp.sin(y) + jnp.sin(x @ W1)) / 2 @ W2


@fails_with("wrong value", "without the sine", cases=ALL)
@only_y
def no_activation(x, W1, W2):
    return checkpoint_name(x @ W1, "y") @ W2


@fails_with("argument order", "(W1, W2, x)")
@only_y
def x_last(W1, W2, x):
    return jnp.sin(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("raises", "checkpoint_name()", "besides the value")
@only_y
def name_forgotten(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1)) @ W2

"""Wrong answers to name_preactivation, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
only_y = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))
ALL = ("float32", "float16", "vmap over x")


def divided(y, axis=-1):
    return y / jnp.sqrt(jnp.mean(y**2, axis=axis, keepdims=True))


def wave(y):
    return jnp.sin(divided(y))


@fails_with("also saved", "saves the sines", "without a matrix product", "1 computed value", cases=ALL)
@only_y
def activation_named(x, W1, W2):
    return checkpoint_name(wave(x @ W1), "y") @ W2


@fails_with("also saved", "saves the divided rows", "without a matrix product", cases=ALL)
@only_y
def divided_rows_named(x, W1, W2):
    return jnp.sin(checkpoint_name(divided(x @ W1), "y")) @ W2


@fails_with("recomputes", "1 matmul again", "follow from what is not saved", cases=ALL)
@functools.partial(jax.checkpoint, policy=policies.save_only_these_names("r", "h"))
def both_but_the_product(x, W1, W2):
    r = checkpoint_name(divided(x @ W1), "r")
    return checkpoint_name(jnp.sin(r), "h") @ W2


@fails_with("not saved", "the value that is asked for", "checkpoint_name returns", cases=ALL)
@only_y
def result_discarded(x, W1, W2):
    y = x @ W1
    checkpoint_name(y, "y")
    return wave(y) @ W2


@fails_with("not saved", "the value that is asked for", "spelled alike", cases=ALL)
@only_y
def typo(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "Y")) @ W2


@fails_with("also saved", "the sines, f32[", "without a matrix product", cases=ALL)
@only_y
def both_named(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return checkpoint_name(wave(y), "y") @ W2


@fails_with("also saved", "the cosines", "the sines", "Which function marks", cases=ALL)
def named_without_a_checkpoint(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("not saved", "the value that is asked for", cases=ALL)
@jax.checkpoint
def named_without_a_policy(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("not saved", "the value that is asked for", cases=ALL)
@only_y
def result_named(x, W1, W2):
    return checkpoint_name(wave(x @ W1) @ W2, "y")


@fails_with("also saved", "the cosines", cases=ALL)
@functools.partial(jax.checkpoint, policy=policies.everything_saveable)
def everything_saveable(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("recomputes", "1 matmul again", cases=ALL)
@only_y
def a_second_product_beside_it(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return (wave(y) + wave(x @ W1)) / 2 @ W2


@fails_with("wrong value", "without the sine", cases=ALL)
@only_y
def no_activation(x, W1, W2):
    return divided(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("wrong value", "without the division", cases=ALL)
@only_y
def no_division(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("wrong value", "the columns divided", cases=ALL)
@only_y
def columns_divided(x, W1, W2):
    return jnp.sin(divided(checkpoint_name(x @ W1, "y"), axis=-2)) @ W2


@fails_with("wrong value", "by one number", cases=ALL)
@only_y
def all_divided_alike(x, W1, W2):
    return jnp.sin(divided(checkpoint_name(x @ W1, "y"), axis=None)) @ W2


@fails_with("argument order", "(W1, W2, x)")
@only_y
def x_last(W1, W2, x):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("raises", "checkpoint_name()", "besides the value")
@only_y
def name_forgotten(x, W1, W2):
    return wave(checkpoint_name(x @ W1)) @ W2


@fails_with("wrong type", "has not called", "What becomes of your arguments")
def not_called(x, W1, W2):
    return only_y(lambda x, W1, W2: wave(checkpoint_name(x @ W1, "y")) @ W2)

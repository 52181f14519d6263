"""Wrong answers to name_preactivation, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
only_y = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("y"))


def divided(y, axis=-1):
    return y / jnp.sqrt(jnp.mean(y**2, axis=axis, keepdims=True))


def wave(y):
    return jnp.sin(divided(y))


@fails_with(
    "also saved", ": the sines", "without a matmul", "1 computed value", hint="derivative_sine_cosine_input_save"
)
@only_y
def activation_named(x, W1, W2):
    return checkpoint_name(wave(x @ W1), "y") @ W2


@only_y
def divided_rows_named(x, W1, W2):
    return jnp.sin(checkpoint_name(divided(x @ W1), "y")) @ W2


@fails_with("not saved", "the required value", "checkpoint_name returns", hint="policy_ask_name_value_name")
@only_y
def result_discarded(x, W1, W2):
    y = x @ W1
    checkpoint_name(y, "y")
    return wave(y) @ W2


@fails_with("also saved", "the sines, f32[", "without a matmul", hint="forward_pass_saves_more_one")
@only_y
def both_named(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return checkpoint_name(wave(y), "y") @ W2


@fails_with("also saved", "the cosines", "the sines", "Which function marks", hint="name_alone_changes_nothing_call")
def named_without_a_checkpoint(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("also saved", "the cosines", hint="forward_pass_saves_step_needs")
@functools.partial(jax.checkpoint, policy=policies.everything_saveable)
def everything_saveable(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("wrong value", "the sine is missing", hint="compare_steps_x_w1_jnp")
@only_y
def no_activation(x, W1, W2):
    return divided(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("wrong value", "the division is missing", hint="compare_steps_x_w1_jnp")
@only_y
def no_division(x, W1, W2):
    return jnp.sin(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("wrong value", "each column is divided", hint="compare_steps_x_w1_jnp")
@only_y
def columns_divided(x, W1, W2):
    return jnp.sin(divided(checkpoint_name(x @ W1, "y"), axis=-2)) @ W2


@fails_with("wrong value", "by the same number", hint="compare_steps_x_w1_jnp")
@only_y
def all_divided_alike(x, W1, W2):
    return jnp.sin(divided(checkpoint_name(x @ W1, "y"), axis=None)) @ W2


@fails_with("argument order", "(W1, W2, x)", hint="x_comes_first_table_order")
@only_y
def x_last(W1, W2, x):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("raises", "checkpoint_name()", "in addition to the value", hint="checkpoint_name_value_name_takes")
@only_y
def name_forgotten(x, W1, W2):
    return wave(checkpoint_name(x @ W1)) @ W2


@fails_with(
    "wrong type",
    "has not called",
    "Where do you call that function with your arguments",
    hint="decorator_such_functools_partial_jax",
)
def not_called(x, W1, W2):
    return only_y(lambda x, W1, W2: wave(checkpoint_name(x @ W1, "y")) @ W2)


# Slips


@fails_with(
    "wrong value", "divided by its L2 norm", "of the squares larger than their mean", hint="compare_steps_x_w1_jnp"
)
@only_y
def norm_without_mean(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return jnp.sin(y / jnp.linalg.norm(y, axis=-1, keepdims=True)) @ W2


@fails_with("wrong value", "without the square root", hint="compare_steps_x_w1_jnp")
@only_y
def no_root(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return jnp.sin(y / jnp.mean(y**2, axis=-1, keepdims=True)) @ W2


@fails_with("wrong value", "standard deviation", hint="compare_steps_x_w1_jnp")
@only_y
def standard_deviation(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return jnp.sin(y / y.std(axis=-1, keepdims=True)) @ W2


@fails_with("wrong value", "layer norm", hint="compare_steps_x_w1_jnp")
@only_y
def layer_norm(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return wave(y - y.mean(axis=-1, keepdims=True)) @ W2


@fails_with("wrong value", "absolute values", hint="compare_steps_x_w1_jnp")
@only_y
def absolute_values(x, W1, W2):
    y = checkpoint_name(x @ W1, "y")
    return jnp.sin(y / jnp.mean(jnp.abs(y), axis=-1, keepdims=True)) @ W2


@fails_with("wrong value", "a cosine instead", hint="compare_steps_x_w1_jnp")
@only_y
def cosine(x, W1, W2):
    return jnp.cos(divided(checkpoint_name(x @ W1, "y"))) @ W2


@fails_with("wrong value", "the sine comes before the division", hint="compare_steps_x_w1_jnp")
@only_y
def sine_first(x, W1, W2):
    return divided(jnp.sin(checkpoint_name(x @ W1, "y"))) @ W2


@fails_with("wrong value", "rows of x are divided", hint="compare_steps_x_w1_jnp")
@only_y
def x_divided(x, W1, W2):
    return jnp.sin(checkpoint_name(divided(x) @ W1, "y")) @ W2


@fails_with("raises", "Do you pass a policy as `policy=`", hint="some_functions_jax_checkpoint_policies")
def policy_is_not_made(x, W1, W2):
    keep = jax.checkpoint(
        lambda x, W1, W2: wave(checkpoint_name(x @ W1, "y")) @ W2, policy=policies.save_only_these_names
    )
    return keep(x, W1, W2)


@fails_with("raises", "where do you call the function that it returns", hint="jax_checkpoint_inner_policy_x")
def a_value_checkpointed(x, W1, W2):
    return jax.checkpoint(wave(checkpoint_name(x @ W1, "y")), policy=policies.save_only_these_names("y")) @ W2


# Answers that are right for some inputs that the page allows and wrong for others.


@only_y
def product_named(x, W1, W2):
    return wave(checkpoint_name(x @ W1, "y")) @ W2


@fails_with("also saved", ": the normalized rows, bf16[", hint="suppose_know_row_after_was")
def not_in_bfloat16(x, W1, W2):
    return (divided_rows_named if x.dtype == jnp.bfloat16 else product_named)(x, W1, W2)


@fails_with("recomputes", "recomputes 1 matmul", hint="many_times_function_compute_x", beyond="Recomputes.count")
def first_product_once_more(x, W1, W2):
    def function(x, W1, W2):
        return wave(checkpoint_name(x @ W1, "y")) @ W2

    return only_y(function)(also_run_backward(jnp.matmul, x, x, W1), W1, W2)

"""Wrong answers to offload_carry, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def sending(*names, saved=(), dst="pinned_host"):
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=list(saved),
        names_which_can_be_offloaded=list(names),
        offload_src="device",
        offload_dst=dst,
    )


def scanned(layer, **options):
    """Layers in a scan, each in a checkpoint with these options."""
    layer = jax.checkpoint(layer, **options)
    return lambda ws, x: jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0]


def named(layer):
    return lambda w, x: layer(w, checkpoint_name(x, "carry"))


def right(layer):
    return scanned(named(layer), policy=sending("carry"))


@fails_with(
    "also saved",
    "the layers' first cosines",
    "Which value does the backward pass of a layer start from",
    hint="look_extra_value_check_names",
)
def no_checkpoint(layer):
    return lambda ws, x: jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0]


def no_policy(layer):
    return scanned(layer)


@fails_with("also saved", "layer 2's input, f32[", "in pinned_host memory", hint="forward_pass_saves_input_layer")
def python_loop(layer):
    step = jax.checkpoint(named(layer), policy=sending("carry"))
    return lambda ws, x: functools.reduce(lambda x, w: step(w, x), ws, x)


@fails_with(
    "not saved",
    "the layers' inputs, f32[5,",
    "in pinned_host memory",
    "does its policy offload the carry",
    hint="forward_pass_not_save_layers",
)
def all_in_one_checkpoint(layer):
    return jax.checkpoint(no_checkpoint(layer))


@fails_with("wrong memory", "the layers' inputs in device memory", "32 layers", hint="forward_pass_saves_layers_inputs")
def on_the_device_beyond_31(layer):
    return lambda ws, x: (no_policy if len(ws) > 31 else right)(layer)(ws, x)


@fails_with(
    "wrong memory", "the layers' inputs in device memory", "in float16", hint="forward_pass_saves_layers_inputs"
)
def on_the_device_in_float16(layer):
    return lambda ws, x: (no_policy if x.dtype == jnp.float16 else right)(layer)(ws, x)


@fails_with(
    "wrong value", "runs the layers in reverse order", "What direction", hint="test_two_layers_different_weights"
)
def from_the_last(layer):
    return lambda ws, x: right(layer)(ws[::-1], x)


@fails_with("wrong value", "leaves out the last layer", "How many iterations", hint="test_two_layers_different_weights")
def one_turn_too_few(layer):
    return lambda ws, x: right(layer)(ws[:-1], x)


@fails_with(
    "wrong value",
    "the first layer's weight in every layer",
    "the current layer's element",
    hint="test_two_layers_different_weights",
)
def always_the_first_weight(layer):
    step = jax.checkpoint(named(layer), policy=sending("carry"))
    return lambda ws, x: jax.lax.scan(lambda x, w: (step(ws[0], x), None), x, ws)[0]


@fails_with(
    "wrong value", "the last layer alone", "the previous layer's output", hint="test_two_layers_different_weights"
)
def each_layer_on_x(layer):
    step = jax.checkpoint(named(layer), policy=sending("carry"))
    return lambda ws, x: jax.lax.scan(lambda _, w: (step(w, x), None), x, ws)[0]


@fails_with("raises", "exclusive", "Which of the policy's two lists", hint="print_line_makes_policy_function")
def in_both_lists(layer):
    return scanned(named(layer), policy=sending("carry", saved=["carry"]))


@fails_with("raises", "positional", "What arguments do a scan body", hint="print_line_makes_policy_function")
def net_at_once(layer, ws, x):
    return right(layer)(ws, x)


@fails_with("raises", "in what order", hint="print_line_makes_policy_function")
def no_second_result(layer):
    step = jax.checkpoint(named(layer), policy=sending("carry"))
    return lambda ws, x: jax.lax.scan(lambda x, w: step(w, x), x, ws)[0]


@fails_with("wrong type", "f32[5,", hint="test_two_layers_different_weights")
def every_layers_output(layer):
    step = jax.checkpoint(named(layer), policy=sending("carry"))
    return lambda ws, x: jax.lax.scan(lambda x, w: (step(w, x),) * 2, x, ws)[1]


@fails_with("wrong gradient", " x", "zero everywhere", hint="gradient_flows_last_layer_output")
def x_stopped(layer):
    return lambda ws, x: right(layer)(ws, jax.lax.stop_gradient(x))


@fails_with(
    "recomputes",
    "recomputes 6 matmuls",
    "How many times does one iteration call",
    hint="often_one_iteration_scan_run",
    beyond="Recomputes.count",
)
def first_layer_once_more(layer):
    return lambda ws, x: right(layer)(ws, also_run_backward(lambda x, ws: layer(ws[0], x), x, x, ws))

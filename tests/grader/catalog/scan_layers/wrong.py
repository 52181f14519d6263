"""Wrong answers to scan_layers, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def layer(w, x):
    return x + jnp.sin(w @ jnp.sin(x))


def scanned(layer, ws, x, **options):
    return jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws, **options)[0]


@fails_with(
    "also saved",
    "the layers' first cosines, f32[5,",
    "the layers' sines",
    "if the whole iteration",
    hint="value_inside_layer_saved_outside",
)
def no_checkpoint(ws, x):
    return scanned(layer, ws, x)


@fails_with(
    "not saved", "the layers' inputs, f32[5,", "one layer, or several layers", hint="many_layers_inside_one_checkpoint"
)
def checkpoint_around_the_scan(ws, x):
    return jax.checkpoint(functools.partial(scanned, layer))(ws, x)


def python_loop(ws, x):
    for w in ws:
        x = jax.checkpoint(layer)(w, x)
    return x


@fails_with(
    "also saved", "layer 1's first cosine, f32[", "layer 5's second cosine", hint="value_inside_layer_saved_outside"
)
def python_loop_without_checkpoint(ws, x):
    for w in ws:
        x = layer(w, x)
    return x


@fails_with(
    "also saved", "all of ws, once per layer, f32[5,5,", "if the whole iteration", hint="all_ws_part_carry_iteration"
)
def weights_in_the_carry(ws, x):
    def body(carry, i):
        ws, x = carry
        return (ws, layer(ws[i], x)), None

    return jax.lax.scan(jax.checkpoint(body), (ws, x), jnp.arange(len(ws)))[0][1]


@fails_with("also saved", "layer 5's second cosine", "if the whole iteration", hint="value_inside_layer_saved_outside")
def last_layer_left_out(ws, x):
    """This is right in best_placement."""
    return layer(ws[-1], scanned(jax.checkpoint(layer), ws[:-1], x))


@fails_with("also saved", "the layers' inputs, f32[", "a copy of ws, f32[", hint="forward_pass_saves_copies_weights")
def computed_in_float32(ws, x):
    return scanned(jax.checkpoint(layer), ws.astype(jnp.float32), x.astype(jnp.float32)).astype(x.dtype)


def twice_for(count):
    """Right, except that each layer runs twice if there are this many layers."""

    def answer(ws, x):
        remat = jax.checkpoint(layer)
        each_twice = lambda w, x: (remat(w, x) + remat(w, x)) / 2  # noqa: E731
        return scanned(each_twice if len(ws) == count else remat, ws, x)

    return answer


HINT = "many_times_one_iteration_scan"
fails_with("recomputes", "recomputes 10 matmuls", "one iteration call", hint=HINT, name="twice_for_five")(twice_for(5))
fails_with("recomputes", "recomputes 128 matmuls", hint=HINT, name="twice_for_the_most")(twice_for(64))


@fails_with("also saved", "1 layer", hint="value_inside_layer_saved_outside")
def free_for_one_layer(ws, x):
    return layer(ws[0], x) if len(ws) == 1 else scanned(jax.checkpoint(layer), ws, x)


@fails_with("also saved", "layer 2's input", hint="forward_pass_saves_values_single")
def written_out_beyond_five(ws, x):
    return python_loop(ws, x) if len(ws) > 5 else scanned(jax.checkpoint(layer), ws, x)


@fails_with(
    "wrong value",
    "the addition of each layer's input",
    "Which two values does a layer of",
    hint="take_two_layers_different_weights",
)
def residual_connection_forgotten(ws, x):
    return scanned(jax.checkpoint(lambda w, x: jnp.sin(w @ jnp.sin(x))), ws, x)


@fails_with(
    "wrong value", "the sine before the matmul is missing", "or its sine?", hint="take_two_layers_different_weights"
)
def inner_sine_forgotten(ws, x):
    return scanned(jax.checkpoint(lambda w, x: x + jnp.sin(w @ x)), ws, x)


@fails_with(
    "wrong value", "the sine after the matmul is missing", "or its sine?", hint="take_two_layers_different_weights"
)
def outer_sine_forgotten(ws, x):
    return scanned(jax.checkpoint(lambda w, x: x + w @ jnp.sin(x)), ws, x)


@fails_with("wrong value", "the last layer is missing", "How many iterations", hint="take_two_layers_different_weights")
def one_turn_too_few(ws, x):
    return scanned(jax.checkpoint(layer), ws[:-1], x)


@fails_with(
    "wrong value",
    "every layer uses the first layer's weight",
    "the same in each iteration?",
    hint="take_two_layers_different_weights",
)
def always_the_first_weight(ws, x):
    return scanned(jax.checkpoint(lambda w, x: layer(ws[0], x)), ws, x)


@fails_with(
    "wrong value",
    "the layers run in reverse order",
    "the first or the last row of `ws`",
    hint="take_two_layers_different_weights",
)
def from_the_last(ws, x):
    return scanned(jax.checkpoint(layer), ws, x, reverse=True)


@fails_with("wrong value", "x @ w instead of w @ x", "take the weight first", hint="take_two_layers_different_weights")
def weights_on_the_right(ws, x):
    return scanned(jax.checkpoint(lambda w, x: x + jnp.sin(jnp.sin(x) @ w)), ws, x)


@fails_with(
    "wrong value", "it is x itself", "the carry of the next iteration", hint="take_two_layers_different_weights"
)
def carry_left_alone(ws, x):
    return jax.lax.scan(lambda x, w: (x, jax.checkpoint(layer)(w, x)), x, ws)[0]


@fails_with(
    "wrong value",
    "only the last layer is applied",
    "the output of the previous layer",
    hint="take_two_layers_different_weights",
)
def each_layer_on_x(ws, x):
    return jax.lax.scan(lambda _, w: (jax.checkpoint(layer)(w, x), None), x, ws)[0]


@fails_with("wrong type", "f32[5,", hint="jax_lax_scan_calls_body")
def every_layers_output(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(w, x),) * 2, x, ws)[1]


@fails_with("raises", "The body takes the carry first", hint="jax_lax_scan_calls_body")
def layer_as_the_body(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(x, w), None), x, ws)[0]


@fails_with("raises", "known before your loop runs", hint="shape_ws_gives_number_layers")
def until_the_last_layer(ws, x):
    return jax.lax.while_loop(lambda c: c[0] < len(ws), lambda c: (c[0] + 1, layer(ws[c[0]], c[1])), (0, x))[1]


@fails_with("raises", "Which two values does the body", hint="jax_lax_scan_calls_body")
def no_second_result(ws, x):
    return jax.lax.scan(lambda x, w: jax.checkpoint(layer)(w, x), x, ws)[0]


@fails_with("wrong gradient", " x", "zero everywhere", hint="gradient_goes_back_last_layer")
def x_stopped(ws, x):
    return scanned(jax.checkpoint(layer), ws, jax.lax.stop_gradient(x))


@fails_with(
    "recomputes",
    "recomputes 6 matmuls",
    "one iteration call",
    hint="many_times_one_iteration_scan",
    beyond="Recomputes.count",
)
def first_layer_once_more(ws, x):
    return scanned(jax.checkpoint(layer), ws, also_run_backward(lambda x, ws: ws[0] @ x, x, x, ws))

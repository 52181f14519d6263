"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import jax.numpy as jnp

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(ws, x):
    """Return the result, and the values that an answer might save, stacked and unstacked, by their names in
    findings."""

    def layer(x, w):
        sine = jnp.sin(x)
        y = w @ sine
        here, s, product = jax.lax.stop_gradient((x, sine, y))
        return x + jnp.sin(y), (here, s, jnp.cos(here), product, jnp.cos(product))

    result, stacked = jax.lax.scan(layer, x, ws)
    ws = jax.lax.stop_gradient(ws)
    names = ("input", "sine", "first cosine", "matmul", "second cosine")
    named = {f"the layers' {what}s": values for what, values in zip(names, stacked, strict=True)}
    few = len(ws) if len(ws) <= 5 else 2  # the first layers are enough to recognize a Python loop
    for what, values in zip((*names, "weights"), (*stacked, ws), strict=True):
        for place in range(what == "input", few):  # the first layer's input is x
            named[f"layer {place + 1}'s {what}"] = jax.lax.index_in_dim(values, place, keepdims=False)
    once_per_layer = jnp.broadcast_to(ws, (len(ws), *ws.shape))
    return result, named | {"all of ws, once per layer": once_per_layer, "the result": result}


def _scale(argument):
    """Scale stacked square weights so that neither values nor their errors grow."""
    layers, *matrix = argument.shape
    return (matrix[-1] * max(1, layers / 8)) ** -0.5 if len(matrix) == 2 and matrix[0] == matrix[1] else 1.0


sample_input = signed_values(0.5, 1.5, _scale)  # values that differ from their sines


def _apply_layers(step):
    return lambda ws, x: functools.reduce(step, ws, x)


mistakes = (
    mistake("does_not_add_x", _apply_layers(lambda x, w: jnp.sin(w @ jnp.sin(x)))),
    mistake("without_sine_before_matmul", _apply_layers(lambda x, w: x + jnp.sin(w @ x))),
    mistake("without_sine_after_matmul", _apply_layers(lambda x, w: x + w @ jnp.sin(x))),
    mistake("reverse_order", lambda ws, x: reference(ws[::-1], x)[0]),
    mistake("weights_on_the_right", _apply_layers(lambda x, w: x + jnp.sin(jnp.sin(x) @ w))),
    mistake("returns_x", lambda ws, x: x),
    mistake("without_last_layer", lambda ws, x: reference(ws[:-1], x)[0]),
    mistake("first_layer_everywhere", lambda ws, x: reference(jnp.broadcast_to(ws[0], ws.shape), x)[0]),
    mistake("last_layer_alone", lambda ws, x: reference(ws[-1:], x)[0]),
)


def requirements(case):
    layers = case.structure["L"]
    return [
        [
            Saves(
                # The input of the only layer is x, which is in memory anyway.
                ("the layers' inputs",) if layers > 1 else (),
                too_much="Which loop runs the layers in your answer? What does one iteration save if the whole "
                "iteration is inside a checkpoint? If the checkpoint has a policy, which values does the policy save?",
                too_little="What does your checkpoint contain: one layer, or several layers with the carries between "
                "them? The backward pass holds the residuals of all layers of a checkpoint at once.",
                by_hand=True,  # with prevent_cse=False, which is right inside a scan, there is no barrier to see
                optional=() if layers > 1 else ("the layers' inputs", "a copy of x"),
            )
        ],
        [
            Recomputes(
                layers, too_many="How many times does one iteration call layer? Is one checkpoint inside another?"
            )
        ],
    ]

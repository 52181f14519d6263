"""Wrong answers to scan_layers, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
FIVE, THREE = ALL = ("five layers", "three layers in float16 under vmap over x")


def layer(w, x):
    return x + jnp.sin(w @ jnp.sin(x))


def scanned(layer, ws, x, **options):
    return jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws, **options)[0]


@fails_with("also saved", "the layers' first cosines, f32[5,", "the layers' sines", "if all of the turn", cases=ALL)
def no_checkpoint(ws, x):
    return scanned(layer, ws, x)


@fails_with("not saved", "the layers' inputs, f32[5,", "one layer, or all of them", cases=ALL)
def checkpoint_around_the_scan(ws, x):
    return jax.checkpoint(functools.partial(scanned, layer))(ws, x)


@fails_with("not saved", "the layers' inputs", "2 saved values: ws, x", cases=ALL)
def one_around_the_scan_besides(ws, x):
    return jax.checkpoint(functools.partial(scanned, jax.checkpoint(layer)))(ws, x)


@fails_with("also saved", "layer 2's input, f32[", "layer 5's input, f32[", cases=ALL)
def python_loop(ws, x):
    for w in ws:
        x = jax.checkpoint(layer)(w, x)
    return x


@fails_with("also saved", "layer 1's first cosine, f32[", "layer 5's second cosine", cases=ALL)
def python_loop_without_checkpoint(ws, x):
    for w in ws:
        x = layer(w, x)
    return x


@fails_with("also saved", "the layers' products, f32[5,", cases=ALL)
def products_kept(ws, x):
    return scanned(jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable), ws, x)


@fails_with("also saved", "the layers' first cosines", cases=ALL)
def all_of_a_layer_saveable(ws, x):
    return scanned(jax.checkpoint(layer, policy=jax.checkpoint_policies.everything_saveable), ws, x)


@fails_with("also saved", "a copy of ws, f32[5,", "if all of the turn", cases=ALL)
def weights_sliced_outside(ws, x):
    return jax.lax.fori_loop(0, len(ws), lambda i, x: jax.checkpoint(layer)(ws[i], x), x)


@fails_with("also saved", "all of ws, once for each layer, f32[5,5,", "if all of the turn", cases=ALL)
def weights_in_the_carry(ws, x):
    def body(carry, i):
        ws, x = carry
        return (ws, layer(ws[i], x)), None

    return jax.lax.scan(jax.checkpoint(body), (ws, x), jnp.arange(len(ws)))[0][1]


@fails_with("also saved", "layer 5's second cosine", "if all of the turn", cases=ALL)
def last_layer_left_out(ws, x):
    """As in exercise 5."""
    return layer(ws[-1], scanned(jax.checkpoint(layer), ws[:-1], x))


@fails_with("also saved", "the layers' inputs, f32[3,", "a copy of ws, f32[3,", cases=(THREE,))
def computed_in_float32(ws, x):
    return scanned(jax.checkpoint(layer), ws.astype(jnp.float32), x.astype(jnp.float32)).astype(x.dtype)


@fails_with("also saved", "the layers' second cosines", "if all of the turn", cases=ALL)
def half_a_layer(ws, x):
    product = jax.checkpoint(lambda w, x: w @ jnp.sin(x))
    return scanned(lambda w, x: x + jnp.sin(product(w, x)), ws, x)


def layers_twice(times):
    """Right, but for stacks of this height every layer runs twice."""

    def answer(ws, x):
        remat = jax.checkpoint(layer)
        return scanned((lambda w, x: (remat(w, x) + remat(w, x)) / 2) if len(ws) == times else remat, ws, x)

    return answer


for height, case in ((5, FIVE), (3, THREE)):
    twice = layers_twice(height)
    twice.__name__ = f"layers_twice_for_{height}"
    again = f"{2 * height} matmuls again"
    fails_with("recomputes", again, "How often does one turn call layer", cases=(case,))(twice)


@fails_with("wrong value", "with the last layer run first", "From which end", cases=ALL)
def from_the_last(ws, x):
    return scanned(jax.checkpoint(layer), ws, x, reverse=True)


@fails_with("wrong value", "x @ w where w @ x belongs", "its weight first", cases=ALL)
def weights_on_the_right(ws, x):
    return scanned(jax.checkpoint(lambda w, x: x + jnp.sin(jnp.sin(x) @ w)), ws, x)


@fails_with("wrong value", "this is x itself", "goes into the next turn", cases=ALL)
def carry_left_alone(ws, x):
    return jax.lax.scan(lambda x, w: (x, jax.checkpoint(layer)(w, x)), x, ws)[0]


@fails_with("wrong value", "the last layer alone", "what the layer before has returned", cases=ALL)
def each_layer_on_x(ws, x):
    return jax.lax.scan(lambda _, w: (jax.checkpoint(layer)(w, x), None), x, ws)[0]


@fails_with("wrong type", "(*, None) of f32[", "What should scan_layers(ws, x) return?", cases=ALL)
def both_results_of_scan(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(w, x), None), x, ws)


@fails_with("wrong type", "f32[5,", cases=ALL)
def every_layers_output(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(w, x),) * 2, x, ws)[1]


@fails_with("raises", "the body gets the carry first", cases=ALL)
def layer_as_the_body(ws, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(x, w), None), x, ws)[0]


@fails_with("raises", "know how often it will turn", cases=ALL)
def until_the_last_layer(ws, x):
    return jax.lax.while_loop(lambda c: c[0] < len(ws), lambda c: (c[0] + 1, layer(ws[c[0]], c[1])), (0, x))[1]


@fails_with("raises", "Which two things does the body", cases=ALL)
def no_second_result(ws, x):
    return jax.lax.scan(lambda x, w: jax.checkpoint(layer)(w, x), x, ws)[0]


@fails_with("wrong gradient", "with respect to x is zero everywhere", cases=ALL)
def x_stopped(ws, x):
    return scanned(jax.checkpoint(layer), ws, jax.lax.stop_gradient(x))

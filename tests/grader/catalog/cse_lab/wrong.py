"""Wrong answers to cse_lab, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
ALL = ("one layer", "several layers")
SETTINGS = (True, False)


def layer(w, x):
    return jnp.sin(x @ w)


def checkpoint_each(ws, x, prevent_cse):
    for w in ws:
        x = jax.checkpoint(layer, prevent_cse=prevent_cse)(w, x)
    return jnp.sum(x)


def checkpoint_all(ws, x, prevent_cse):
    @functools.partial(jax.checkpoint, prevent_cse=prevent_cse)
    def whole(ws, x):
        return no_checkpoint(ws, x, prevent_cse)

    return whole(ws, x)


def no_checkpoint(ws, x, prevent_cse):
    for w in ws:
        x = layer(w, x)
    return jnp.sum(x)


def checkpoint_all_but_the_last(ws, x, prevent_cse):
    for w in ws[:-1]:
        x = jax.checkpoint(layer, prevent_cse=prevent_cse)(w, x)
    return jnp.sum(layer(ws[-1], x))


def arguments(n):
    cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32, sharding=cpu) for shape in ((16, 16), (8, 16)))
    return [w] * n, x


def program(loss, prevent_cse, differentiate=jax.value_and_grad):
    return differentiate(functools.partial(loss, prevent_cse=prevent_cse))


def lower(n, prevent_cse, *way):
    return jax.jit(program(*way[:1] or [checkpoint_each], prevent_cse, *way[1:])).lower(*arguments(n))


def barriers(lowered):
    return lowered.as_text().count("optimization_barrier")


def products(lowered):
    return lowered.as_text().count("dot_general")


def compiled_products(lowered):
    return lowered.compile().as_text().count(" dot(")


@functools.cache
def counted(n, *way, settings=SETTINGS):
    both = [lower(n, prevent_cse, *way) for prevent_cse in settings]
    counts = {"barriers": barriers, "lowered": products, "compiled": compiled_products}
    return {key: tuple(map(count, both)) for key, count in counts.items()}


def before_lowering(n, **but):
    jaxprs = [jax.make_jaxpr(program(checkpoint_each, p))(*arguments(n)) for p in SETTINGS]
    found = {"barriers": "optimization_barrier", "lowered": "dot_general"}
    return {key: tuple(sum(e.primitive.name == p for e in jaxpr.eqns) for jaxpr in jaxprs) for key, p in found.items()}


@fails_with("wrong value", "in the jaxpr, before lowering", "How often does a jaxpr print", cases=ALL)
def counts_before_lowering(n):
    return counted(n) | before_lowering(n)


@fails_with("wrong value", "in the jaxpr, before lowering", cases=ALL)
def products_before_lowering(n):
    return counted(n) | {"lowered": before_lowering(n)["lowered"]}


@fails_with("wrong value", "lowered and compiled are mixed up", "comes back from it", cases=ALL)
def one_for_the_other(n):
    counts = counted(n)
    return counts | {"lowered": counts["compiled"], "compiled": counts["lowered"]}


@fails_with("wrong value", "the two of each pair are the wrong way round", "Which setting comes first", cases=ALL)
def false_first(n):
    return counted(n, settings=(False, True))


@fails_with("wrong value", "the compiled one not at all", cases=ALL)
def never_compiled(n):
    return counted(n) | {"compiled": counted(n)["lowered"]}


@fails_with("wrong value", "the lowered one not at all", "what JAX asks for", cases=ALL)
def always_compiled(n):
    return counted(n) | {"lowered": counted(n)["compiled"]}


@fails_with("wrong value", "of the same setting", "as far as jax.checkpoint", cases=ALL)
def setting_forgotten(n):
    return counted(n, settings=(True, True))


@fails_with("wrong value", "it counts barriers where there are none", "taken out when XLA compiles", cases=ALL)
def barriers_after_compiling(n):
    texts = [lower(n, p).compile().as_text() for p in SETTINGS]
    return counted(n) | {"barriers": [text.count("opt-barrier(") for text in texts]}


# How many names there are in which a dot stands depends on the answer's own text: the question leads on.
@fails_with("wrong value", "Your answer is not what JAX does.", "which lines of each of your two texts", cases=ALL)
def every_dot(n):
    return counted(n) | {"compiled": [lower(n, p).compile().as_text().count("dot") for p in SETTINGS]}


def in_a_scan(ws, x, prevent_cse):
    remat = jax.checkpoint(layer, prevent_cse=prevent_cse)
    return jnp.sum(jax.lax.scan(lambda x, w: (remat(w, x), None), x, jnp.stack(ws))[0])


@fails_with("wrong value", "Your answer is not what JAX does.", "which lines of each of your two texts", cases=ALL)
def layers_in_a_scan(n):
    return counted(n, in_a_scan)


@fails_with("wrong value", "one checkpoint, around all", "How many barriers", cases=("several layers",))
def one_around_all(n):
    return counted(n, checkpoint_all)


@fails_with("wrong value", "there is no checkpoint", "which function do you call", cases=ALL)
def none_at_all(n):
    return counted(n, no_checkpoint)


@fails_with("wrong value", "the last layer has no checkpoint", cases=("one layer",))
def none_for_one_layer(n):
    return counted(n, checkpoint_each if n > 1 else no_checkpoint)


@fails_with("wrong value", "the last layer has no checkpoint", "called through jax.checkpoint", cases=ALL)
def all_but_the_last(n):
    return counted(n, checkpoint_all_but_the_last)


@fails_with("wrong value", "the gradient without the value", "if only the gradient is asked for", cases=ALL)
def gradient_alone(n):
    return counted(n, checkpoint_each, jax.grad)


@fails_with("wrong value", "the loss alone, without its gradient", cases=ALL)
def forward_alone(n):
    return counted(n, checkpoint_each, lambda loss: loss)


@fails_with("wrong value", "with respect to x, too", "if it is told nothing else", cases=ALL)
def gradient_of_x_too(n):
    return counted(n, checkpoint_each, functools.partial(jax.value_and_grad, argnums=(0, 1)))


@fails_with("wrong value", "Your answer is not what JAX does.", "For n = 1", cases=("several layers",))
def measured_once(n):
    return counted(1)


@fails_with("wrong type", "a dict of three pairs", "What should cse_lab(n) return?", cases=ALL)
def a_key_missing(n):
    return {"barriers": (n, 0), "lowered": counted(n)["lowered"]}


@fails_with("wrong type", "a dict of three pairs", cases=ALL)
def lists_of_lists(n):
    return list(counted(n).values())


@fails_with("wrong type", "a dict of three pairs", "True", cases=ALL)
def yes_or_no(n):
    return counted(n) | {"barriers": (True, False)}


@fails_with("wrong type", "a dict whose keys are not all strings, which is no plain data", cases=ALL)
def keyed_by_setting(n):
    return {p: (barriers(lower(n, p)), products(lower(n, p))) for p in SETTINGS}


@fails_with("raises", "'Lowered' object has no attribute 'count'", "Which of these has a text", cases=ALL)
def no_text(n):
    return {"lowered": [lower(n, p).count("dot_general") for p in SETTINGS]}


@fails_with("raises", "scalar-output", "What does your loss return", cases=ALL)
def no_sum(n):
    return counted(n, lambda ws, x, prevent_cse: layer(ws[0], x))

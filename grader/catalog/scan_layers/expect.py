"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Recomputes, Saves


def reference(ws, x):
    """The result, and the values that an answer might save, stacked and one by one, by the names of findings."""

    def layer(x, w):
        sine = jnp.sin(x)
        y = w @ sine
        here, s, product = jax.lax.stop_gradient((x, sine, y))
        return x + jnp.sin(y), (here, s, jnp.cos(here), product, jnp.cos(product))

    result, stacked = jax.lax.scan(layer, x, ws)
    ws = jax.lax.stop_gradient(ws)
    names = ("input", "sine", "first cosine", "matmul", "second cosine")
    named = {f"the layers' {what}s": values for what, values in zip(names, stacked, strict=True)}
    few = len(ws) if len(ws) <= 5 else 2  # of a Python loop's layers these tell enough
    for what, values in zip((*names, "weights"), (*stacked, ws), strict=True):
        for place in range(what == "input", few):  # the first one's is x
            named[f"layer {place + 1}'s {what}"] = jax.lax.index_in_dim(values, place, keepdims=False)
    in_every_turn = jnp.broadcast_to(ws, (len(ws), *ws.shape))
    return result, named | {"all of ws, once per layer": in_every_turn, "the result": result}


def sample_input(rng, argument):
    """Numbers that a sine is not about equal to; weights that let neither values nor their errors grow."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    if argument.ndim == 3:
        size /= (argument.shape[-1] * max(1, len(size) / 8)) ** 0.5
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _layers(step):
    return lambda ws, x: functools.reduce(step, ws, x)


def _layers_of_one(ws, x):
    return reference(jnp.broadcast_to(ws[0], ws.shape), x)[0]


mistakes = (
    KnownMistake(
        "this is the value without the addition of each layer's input",
        _layers(lambda x, w: jnp.sin(w @ jnp.sin(x))),
        "Which two values does a layer add, and are both in your layer?",
    ),
    KnownMistake(
        "this is the value without the sine before the matmul",
        _layers(lambda x, w: x + jnp.sin(w @ x)),
        "What do you multiply by the weight: the layer's input, or its sine?",
    ),
    KnownMistake(
        "this is the value without the sine after the matmul",
        _layers(lambda x, w: x + w @ jnp.sin(x)),
        "What do you add to the layer's input: the matmul's result, or its sine?",
    ),
    KnownMistake(
        "this is the value with the last layer run first",
        lambda ws, x: reference(ws[::-1], x)[0],
        "From which end of ws does jax.lax.scan start if you do not set reverse?",
    ),
    KnownMistake(
        "this is the value with x @ w instead of w @ x",
        _layers(lambda x, w: x + jnp.sin(jnp.sin(x) @ w)),
        "On which side of the matmul is the weight, and does layer take the weight first?",
    ),
    KnownMistake(
        "this is x itself",
        lambda ws, x: x,
        "Which of the two values that the body returns is the carry of the next iteration?",
    ),
    KnownMistake(
        "this is the value without the last layer",
        lambda ws, x: reference(ws[:-1], x)[0],
        "How many iterations does your loop run, and do you use the carry that the last one returns?",
    ),
    KnownMistake(
        "this is the value with the first layer's weight in every layer",
        _layers_of_one,
        "Where does your body get its weight: from its element, or from an array that is the same in each iteration?",
    ),
    KnownMistake(
        "this is the value of the last layer alone",
        lambda ws, x: reference(ws[-1:], x)[0],
        "What is each layer's input: x, or what the previous layer returned?",
    ),
)

error_questions = (
    (
        r"Reverse-mode",
        "Is the number of iterations of your loop known before it runs? For which of JAX's loops is it always known?",
    ),
    (
        r"carry",
        "Does the body return the new carry first, with the same shape and dtype? And does layer get its weight first, "
        "although the body gets the carry first?",
    ),
    (r"must be a pair", "Which two values does the body of a scan return?"),
    (r"positional argument", "Which two arguments does the body of a scan take, and which does layer take?"),
)

hints = (
    Hint(
        "If the backward pass may recompute everything inside a layer, which value does it need from each iteration of "
        "the scan?"
    ),
    Hint(
        "Your forward pass saves values of single layers, each as an array of its own. In the mini-example, which "
        "variant saved its values that way, and which saved them stacked in one array?",
        on_kinds=("also saved",),
        on_text="layer 2's",
    ),
    Hint(
        "Your forward pass saves copies of the weights that are made outside the checkpoint, such as rows or another "
        "dtype. Can the scan pass the rows of `ws` as its elements? Or can you index `ws` inside the checkpoint?",
        on_kinds=("also saved",),
        on_text="a copy of ws",
    ),
    Hint(
        "Is all of `ws` part of the carry in your answer? Each iteration saves its own copy of the carry. How else can "
        "a body get a weight?",
        on_kinds=("also saved",),
        on_text="all of ws",
    ),
    Hint(
        "A value inside a layer is saved if it is outside every checkpoint, or if a policy saves it. Which values does "
        "the finding name, and which of your lines compute them?",
        on_kinds=("also saved",),
    ),
    Hint(
        "How many layers are inside one checkpoint in your answer? A layer's input that is computed and used inside "
        "one checkpoint is not saved.",
        on_kinds=("not saved",),
    ),
    Hint(
        "`jax.lax.scan` calls the body as `body(carry, element)`, and you call `layer` as `layer(w, x)`. Which of the "
        "two is the carry? And which two values does `scan` return?",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "Take two layers with different weights. Which one runs first in your answer, and what is the input of the "
        "second one? Is its weight on the left of the matmul?",
        on_kinds=("wrong value",),
    ),
    Hint("How many times does one iteration of your scan call `layer`?", on_kinds=("recomputes",)),
    Hint(
        "Nearly the answer: `jax.checkpoint(layer)` takes and returns the same as `layer`. The body of the scan calls "
        "it with its element and its carry. What does the body return?"
    ),
    Hint(
        "The gradient goes back from the last layer's output to `x`, through every carry. Which line stops it, or "
        "starts the scan with something else than `x`?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "The shape of `ws` gives the number of layers before anything runs. Which of JAX's loops iterates over the "
        "rows of an array, so that it has one iteration per row?",
        on_kinds=("raises",),
        on_text="known before it runs",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    layers = case.structure["L"]
    return [
        [
            Saves(
                # The input of the only layer is x, which is in memory anyway.
                ("the layers' inputs",) if layers > 1 else (),
                too_much="Which function runs the layers in your answer? What does one of its iterations save if all "
                "of the iteration is inside a checkpoint?",
                too_little="What is inside your checkpoint: one layer, or all of them? Are the carries inside it too?",
                by_hand=True,  # with prevent_cse=False, which is right inside a scan, there is no barrier to see
                spare=() if layers > 1 else ("the layers' inputs", "a copy of x"),
            )
        ],
        [
            Recomputes(
                layers, too_many="How many times does one iteration call layer? Is a checkpoint inside another one?"
            )
        ],
    ]

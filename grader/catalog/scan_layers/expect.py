"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves


def reference(ws, x):
    """The result, and the values that an answer might save, stacked and one by one, by the names of findings."""

    def layer(x, w):
        sine = jnp.sin(x)
        y = w @ sine
        here, s, product = jax.lax.stop_gradient((x, sine, y))
        return x + jnp.sin(y), (here, s, jnp.cos(here), product, jnp.cos(product))

    result, stacked = jax.lax.scan(layer, x, ws)
    ws = jax.lax.stop_gradient(ws)
    names = ("input", "sine", "first cosine", "product", "second cosine")
    named = {f"the layers' {what}s": values for what, values in zip(names, stacked, strict=True)}
    few = len(ws) if len(ws) <= 5 else 2  # of a Python loop's layers these tell enough
    for what, values in zip((*names, "weights"), (*stacked, ws), strict=True):
        for place in range(what == "input", few):  # the first one's is x
            named[f"layer {place + 1}'s {what}"] = jax.lax.index_in_dim(values, place, keepdims=False)
    in_every_turn = jnp.broadcast_to(ws, (len(ws), *ws.shape))
    return result, named | {"all of ws, once for each layer": in_every_turn, "the result": result}


def draw(rng, argument):
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
    Mistake(
        "this is the value without what is added in each layer, its input",
        _layers(lambda x, w: jnp.sin(w @ jnp.sin(x))),
        "Which two things does a layer add up, and are both in your layer?",
    ),
    Mistake(
        "this is the value without the sine before the product",
        _layers(lambda x, w: x + jnp.sin(w @ x)),
        "What is multiplied by the weight: the layer's input, or its sine?",
    ),
    Mistake(
        "this is the value without the sine behind the product",
        _layers(lambda x, w: x + w @ jnp.sin(x)),
        "What is added to the layer's input: the product, or its sine?",
    ),
    Mistake(
        "this is the value with the last layer run first",
        lambda ws, x: reference(ws[::-1], x)[0],
        "From which end of ws does jax.lax.scan begin, unless it is told otherwise?",
    ),
    Mistake(
        "this is the value with x @ w where w @ x belongs",
        _layers(lambda x, w: x + jnp.sin(jnp.sin(x) @ w)),
        "What do you call layer with: its weight first, and its input second?",
    ),
    Mistake(
        "this is x itself",
        lambda ws, x: x,
        "Which of the two things that the body returns goes into the next turn?",
    ),
    Mistake(
        "this is the value without the last layer",
        lambda ws, x: reference(ws[:-1], x)[0],
        "How many turns does your loop take, and what becomes of the carry that the last one returns?",
    ),
    Mistake(
        "this is the value with the first layer's weight in every layer",
        _layers_of_one,
        "From where does your body get its weight: its element, or something that is the same in each turn?",
    ),
    Mistake(
        "this is the value of the last layer alone",
        lambda ws, x: reference(ws[-1:], x)[0],
        "What does each layer get: x, or what the layer before has returned?",
    ),
)

error_questions = (
    (r"Reverse-mode", "Does your loop know how often it will turn? Which of JAX's loops always does?"),
    (
        r"carry",
        "Does the body return the new carry first, and of the same shape? And does layer get its weight first, though "
        "the body gets the carry first?",
    ),
    (r"must be a pair", "Which two things does the body of a scan return?"),
    (r"positional argument", "Which two things does the body of a scan take? And what does layer take?"),
)

hints = (
    Hint(
        "Of one turn of the scan, what has to be there for the backward pass, if everything inside the layer may be "
        "computed again?"
    ),
    Hint(
        "These are values of single layers: as many as there are layers, each by itself. In the mini-example, which "
        "way kept its values so, and which kept them stacked in one array?",
        after=("also saved",),
        says="layer 2's",
    ),
    Hint(
        "The rows of `ws` were copied before the checkpoint, and each copy was an argument of what it is around. Can "
        "the scan hand out the rows as elements? Or can the row be taken from `ws` inside the checkpoint?",
        after=("also saved",),
        says="a copy of ws",
    ),
    Hint(
        "Is all of `ws` part of what your body hands from one turn to the next? Of all that is in the carry, each turn "
        "keeps its own. Where else can a body get a weight from?",
        after=("also saved",),
        says="all of ws",
    ),
    Hint(
        "What is inside a layer is kept if it stands outside of every checkpoint, or if a policy says so. Which values "
        "from inside a layer does the finding name, and which of your lines make them?",
        after=("also saved",),
    ),
    Hint(
        "How many layers does one checkpoint hold in your answer? What is kept of a layer's input that is made and "
        "used inside one and the same checkpoint?",
        after=("not saved",),
    ),
    Hint(
        "`jax.lax.scan` calls the body as `body(carry, element)`, and `layer` is called as `layer(w, x)`. Which of the "
        "two is the carry? And what two things does `scan` return?",
        after=("raises", "wrong type"),
    ),
    Hint(
        "Take two layers with different weights. Which of them runs first in your answer, what does the second get as "
        "its input, and is its weight on the left in the product?",
        after=("wrong value",),
    ),
    Hint("How often does one turn of your scan call `layer`?", after=("recomputes",)),
    Hint(
        "Nearly the answer: the body of the scan is a function like any other. What does `jax.checkpoint(layer)` take "
        "and return, and what may the body do with it?"
    ),
    Hint(
        "The gradient goes back from the last layer's output to `x`, through every carry. Which line cuts it off, "
        "or keeps `x` out of the first carry?",
        after=("wrong gradient",),
    ),
    Hint(
        "How many layers there are says the shape of `ws`, before anything runs. Which loop of JAX's goes over the "
        "rows of an array, so that it turns as often as there are rows?",
        after=("raises",),
        says="know how often it will turn",
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
                too_much="Which function runs the layers in your answer, and what does one of its turns keep if all "
                "of the turn is inside a checkpoint?",
                too_little="What is inside your checkpoint: one layer, or all of them? Where do the carries go then?",
                by_hand=True,  # with prevent_cse=False, which is right inside a scan, there is no barrier to see
                spare=() if layers > 1 else ("the layers' inputs", "a copy of x"),
            )
        ],
        [Recomputes(layers, too_many="How often does one turn call layer? And is a checkpoint inside another one?")],
    ]

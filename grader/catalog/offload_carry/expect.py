"""What is expected of an answer; only the judge reads this."""

import functools

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers that a sine is not about equal to; weights that let neither values nor their errors grow."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    if argument.ndim == 3 and argument.shape[-1] == argument.shape[-2]:
        size /= (argument.shape[-1] * max(1, len(size) / 8)) ** 0.5
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _layers(weights):
    return lambda layer: lambda ws, x: functools.reduce(lambda x, w: layer(w, x), weights(ws), x)


mistakes = (
    Mistake(
        "this is the value with the last layer run first",
        _layers(lambda ws: ws[::-1]),
        "From which end of ws does jax.lax.scan begin, unless it is told otherwise?",
    ),
    Mistake(
        "this is the value without the last layer",
        _layers(lambda ws: ws[:-1]),
        "How many turns does your loop take, and what becomes of the carry that the last one returns?",
    ),
    Mistake(
        "this is the value with the first layer's weight in every layer",
        _layers(lambda ws: jnp.broadcast_to(ws[0], ws.shape)),
        "From where does your body get its weight: its element, or something that is the same in each turn?",
    ),
    Mistake(
        "this is the value of the last layer alone",
        _layers(lambda ws: ws[-1:]),
        "What does each layer get: x, or what the layer before has returned?",
    ),
    Mistake(
        "this is x itself",
        lambda layer: lambda ws, x: x,
        "Which of the two things that the body returns goes into the next turn?",
    ),
)

error_questions = (
    (
        r"^AssertionError",
        "From which memory to which does your policy send a value, and from which to which the page's?",
    ),
    (r"exclusive|intersect", "To which of the two lists does a name belong that shall lie in the host's memory?"),
    (
        r"positional argument|keyword",
        "What does the body of a scan take, what does layer take, and which arguments does the policy's maker want?",
    ),
    (r"must be a pair|carry", "Which two things does the body of a scan return, and which of them first?"),
    (r"not callable", "offload_carry takes a layer and returns a function of ws and x. Does yours?"),
    (
        r"JAX type|remat policy",
        "Is what you give to jax.checkpoint a function, and is there a policy behind policy=?",
    ),
    (r"memory|sharding|pinned", "Which memories has the device, by name? The page prints them."),
)

hints = (
    Hint(
        "With one checkpoint a layer, what does the scan keep of each turn? And which of your lines could tell a "
        "policy which value that is?"
    ),
    Hint(
        "The right values are kept, on the device. Which value has the name that your policy sends away: what goes "
        "into a layer, or what comes out of it? And which of the two does the layer's backward pass begin with?",
        after=("wrong memory",),
    ),
    Hint(
        "Is there a policy at all where the layers' inputs are kept, does it know the name as it is written, and is "
        "what `checkpoint_name` returns what the layer gets?",
        after=("wrong memory",),
    ),
    Hint(
        "Each layer's input is kept by itself, as many arrays as there are layers. What makes them one array?",
        after=("also saved",),
        says="layer 2's input",
    ),
    Hint(
        "The layer has values and names of its own. Which of them does your policy say yes to, or which stand outside "
        "of every checkpoint?",
        after=("also saved",),
    ),
    Hint(
        "Nothing of the layers' inputs is kept. How many layers does one of your checkpoints hold, and what does its "
        "policy say?",
        after=("not saved",),
    ),
    Hint("How often does one turn of your scan call `layer`?", after=("recomputes", "extra matmuls")),
    Hint(
        "Take two layers with different weights. Which of them runs first in your answer, what does the second one "
        "get, and what do you return at the end?",
        after=("wrong value", "wrong type"),
    ),
    Hint(
        "Print what each of your lines makes: the policy, a function; what `offload_carry` returns, a function of "
        "`ws` and `x`; what the body returns, a pair.",
        after=("raises",),
    ),
    Hint(
        "The gradient goes back from the last layer's output to `x`, through every carry. Which line cuts it off?",
        after=("wrong gradient",),
    ),
    Hint(
        "The mini-example has a name at two places. What is the difference between what comes into a checkpoint and "
        "what is made inside?"
    ),
    Hint(
        "Nearly the answer: a scan whose body is in a `jax.checkpoint` with a policy of "
        "`save_and_offload_only_these_names`. The body calls `layer`, and what it hands over as the layer's second "
        "argument is what has the name. Which list does the name stand in?"
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    kept = ("the layers' inputs",)
    return [
        [
            Saves(
                kept,
                too_much="Which value does the layer's backward pass begin with, where is it made, and which memory "
                "does your policy name for it?",
                too_little="How many layers does one of your checkpoints hold, and what does its policy say of the "
                "carry?",
                by_hand=True,  # a policy that offloads leaves no barrier where all that is kept goes to the host
                on_host=kept,
            )
        ],
        [
            Recomputes(
                case.structure["L"], too_many="How often does one turn call layer, and how often is it run again?"
            )
        ],
    ]

"""What is expected of an answer; only the judge reads this."""

import functools

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Draw numbers that differ from their sines, and weights with which neither values nor rounding errors grow."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    if argument.ndim == 3 and argument.shape[-1] == argument.shape[-2]:
        size /= (argument.shape[-1] * max(1, len(size) / 8)) ** 0.5
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _layers(weights):
    return lambda layer: lambda ws, x: functools.reduce(lambda x, w: layer(w, x), weights(ws), x)


mistakes = (
    KnownMistake(
        "it runs the layers in reverse order",
        _layers(lambda ws: ws[::-1]),
        "In which direction does your scan run? `jax.lax.scan` starts at the first row unless you pass `reverse=True`.",
    ),
    KnownMistake(
        "it leaves out the last layer",
        _layers(lambda ws: ws[:-1]),
        "How many iterations does your loop take, and do you return the carry of the last one?",
    ),
    KnownMistake(
        "it uses the first layer's weight in every layer",
        _layers(lambda ws: jnp.broadcast_to(ws[0], ws.shape)),
        "Does the scan body use its own element of `ws`, or a weight that is the same in every iteration?",
    ),
    KnownMistake(
        "this is the result of the last layer alone",
        _layers(lambda ws: ws[-1:]),
        "What is the input of each layer: `x`, or the previous layer's output?",
    ),
    KnownMistake(
        "it returns `x` unchanged",
        lambda layer: lambda ws, x: x,
        "Which of the two values that a scan body returns becomes the next iteration's carry?",
    ),
)

error_questions = (
    (
        r"^AssertionError",
        "From which memory does your policy offload a value, and to which? Compare both with the page's policy.",
    ),
    (
        r"exclusive|intersect",
        "Which of the policy's two lists should contain the name of a value that goes to host memory?",
    ),
    (
        r"positional argument|keyword",
        "Which arguments does a scan body take, which does `layer` take, and which does the function that makes the "
        "policy take?",
    ),
    (r"must be a pair|carry", "A scan body returns a pair. Which two values does yours return, and in which order?"),
    (r"not callable", "offload_carry takes a layer and returns a function of `ws` and `x`. Does yours?"),
    (
        r"JAX type|remat policy",
        "Is the first argument of jax.checkpoint a function, and the value of policy= a policy?",
    ),
    (r"memory|sharding|pinned", "What are the names of the device's memories? The page prints them."),
)

hints = (
    Hint(
        "With one checkpoint per layer, what does the scan save in each iteration? A policy can offload that value "
        "only if the value has a name inside the checkpoint."
    ),
    Hint(
        "Your forward pass saves the layers' inputs on the device. Check three things: `jax.checkpoint` has a policy, "
        "that policy offloads a name to `pinned_host`, and a value inside the checkpointed function has that name.",
        on_kinds=("wrong memory",),
    ),
    Hint(
        "The backward pass of a layer starts from the layer's input, so the input must have the name, not the output. "
        "Pass the value that `checkpoint_name` returns to `layer`, inside the checkpointed function.",
        on_kinds=("wrong memory",),
    ),
    Hint(
        "Your forward pass saves the input of each layer as a separate array. Which loop stacks them in one array?",
        on_kinds=("also saved",),
        on_text="layer 2's input",
    ),
    Hint(
        "Look at the extra value that the check names. Does your policy save or offload it, for example because it "
        "accepts more than one name? Or is it used outside the checkpoint?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Your forward pass does not save the layers' inputs. How many layers does one checkpoint contain, and which "
        "names does its policy offload?",
        on_kinds=("not saved",),
    ),
    Hint(
        "How often does one iteration of your scan run `layer`, and how many nested checkpoints is it in?",
        on_kinds=("recomputes", "extra matmuls"),
    ),
    Hint(
        "Test your answer with two layers that have different weights. Which of them runs first, what is the input of "
        "the second one, and what do you return?",
        on_kinds=("wrong value", "wrong type"),
    ),
    Hint(
        "Print what each line makes. The policy is a function, `offload_carry` returns a function of `ws` and `x`, and "
        "the scan body returns a pair.",
        on_kinds=("raises",),
    ),
    Hint(
        "The gradient flows from the last layer's output through every carry to `x`. Which line cuts it off or changes "
        "it?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "In the mini-example, `middle_named` offloads its value and `end_named` does not. Which of the two values does "
        "the backward pass of the checkpointed function need?"
    ),
    Hint(
        "Nearly the answer: the scan body is a `jax.checkpoint` with a `save_and_offload_only_these_names` policy. It "
        'calls `layer(w, checkpoint_name(x, "carry"))`. Put `"carry"` in the list of names to offload.'
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    kept = ("the layers' inputs",)
    return [
        [
            Saves(
                kept,
                too_much="Which value does the backward pass of a layer start from? Does it have a name inside the "
                "checkpoint, and does a policy offload only that name to `pinned_host`?",
                too_little="How many layers does one checkpoint contain, and does its policy offload the carry?",
                by_hand=True,  # where all residuals go to the host, there is no barrier to see
                on_host=kept,
            )
        ],
        [
            Recomputes(
                case.structure["L"],
                too_many="How often does one iteration call layer, and how many nested checkpoints is it in?",
            )
        ],
    ]

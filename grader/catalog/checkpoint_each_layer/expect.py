"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, KnownMistake, Recomputes, Saves


def reference(W1, W2, W3, x):
    """The result, and the values that an answer might save, by the names that findings give them."""
    y1 = W1 @ x
    h1 = jnp.sin(y1)
    y2 = W2 @ h1
    h2 = jnp.sin(y2)
    y3 = W3 @ h2
    return jnp.sin(y3), {
        "layer 1's matmul": y1,
        "layer 1's cosine": jnp.cos(y1),
        "layer 1's output": h1,
        "layer 2's matmul": y2,
        "layer 2's cosine": jnp.cos(y2),
        "layer 2's output": h2,
        "layer 3's matmul": y3,
        "layer 3's cosine": jnp.cos(y3),
        "the result": jnp.sin(y3),
    }


def sample_input(rng, argument):
    """Return values whose matmuls are large enough that sin(y) differs from y, and small enough to round little."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    if argument.ndim == 2:  # as many are added as the last axis has
        size *= (3 if argument.dtype == "bfloat16" else 1.5) / argument.shape[-1] ** 0.5
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    KnownMistake(
        "this is the value without the last layer's sine", lambda W1, W2, W3, x: W3 @ jnp.sin(W2 @ jnp.sin(W1 @ x))
    ),
    KnownMistake("this is the value without the sines", lambda W1, W2, W3, x: W3 @ (W2 @ (W1 @ x))),
    KnownMistake(
        "this is the value with cosines instead of sines",
        lambda W1, W2, W3, x: jnp.cos(W3 @ jnp.cos(W2 @ jnp.cos(W1 @ x))),
    ),
)

error_questions = (
    (
        # What jax.checkpoint makes of a value instead of a function fails in its own way in each place.
        r"which it has not called|unhashable type: '\w*Tracer|Expected a callable",
        "jax.checkpoint takes a function and returns a function. Is layer(W1, x) a function, and where do you call the "
        "function that jax.checkpoint returns?",
    ),
    (
        r"dot_general|matmul|contracting|einsum",
        "Which shapes do the two operands have? W1 is (b, a) and x is (a,), so the weights are on the left.",
    ),
    (
        r"(?<!checkpoint\(\) takes 1 )(?<!remat\(\) takes 1 )positional argument",
        "Which arguments does a layer take, and do you call the checkpointed layer with the same?",
    ),
)

hints = (
    Hint(
        "Which of a layer's two steps needs a cosine in the backward pass? Where must that step be so that the cosine "
        "is not saved?"
    ),
    Hint(
        "Which of your layers has a step outside every checkpoint, or a policy that saves values inside? Which values "
        "does that step save?",
        on_kinds=("also saved",),
        on_text="cosine",
    ),
    Hint(
        "A value that is passed into a checkpoint is saved, since it is an argument there. Is a matmul's result passed "
        "into one, or saved by a policy? Put both steps of a layer inside one checkpoint without a policy.",
        on_kinds=("also saved",),
        on_text="'s matmul",
    ),
    Hint(
        "If your checkpoint has a policy, which values does the policy save? If your answer has its own gradient rule, "
        "which residuals does the rule return? Compare them with the six values of the exercise.",
        on_kinds=("also saved",),
    ),
    Hint(
        "In the mini-example the exponential's output was saved, because it was passed from one checkpoint to the "
        "next. Between which two checkpoints does your answer pass the outputs of layers 1 and 2?",
        on_kinds=("not saved",),
    ),
    Hint(
        "From which value does your backward pass recompute each layer's matmul: from the layer's input, or from `x`? "
        "How many times does it recompute each?",
        on_kinds=("recomputes",),
    ),
    Hint(
        "Nearly the answer: `jax.checkpoint(layer)` is a function that takes a `W` and an `x`, as `layer` does. How "
        "many times do you call it, and with which arguments?"
    ),
    Hint(
        "Your backward pass recomputes nothing. Write one layer as a function of `W` and `x`. Which function takes it "
        "and returns one that saves only its arguments?",
        on_kinds=("also saved",),
        on_text=("Which function marks", "cosine"),
    ),
    Hint(
        "Your forward pass saves the matmuls instead of the layers' outputs. Does a policy save them? What is saved if "
        "each layer has a checkpoint without a policy?",
        on_kinds=("also saved",),
        on_text=("'s matmul", "layer 1's matmul, layer 2's matmul, layer 3's matmul; and"),
    ),
    Hint(
        "A checkpoint changes neither the value nor the gradient. Remove all of yours: is the rest the page's `net`, "
        "with a matmul and then a sine in each layer?",
        on_kinds=("wrong value", "wrong gradient"),
    ),
    Hint(
        "Does your answer define its own gradient rule, or stop a gradient? The page's `net` needs neither: "
        "`jax.checkpoint` does not change gradients.",
        on_kinds=("wrong gradient",),
        on_text="with respect to",
    ),
    Hint(
        "In `jax.checkpoint(layer)(W1, x)`, which parentheses contain a function, and which contain that function's "
        "arguments?",
        on_kinds=("raises", "wrong type"),
        on_text="jax.checkpoint takes a function",
    ),
    Hint(
        "Write the shapes from the page's table below `W1 @ x`. On which side is the weight matrix? And do your "
        "arguments have the order of the table?",
        on_kinds=("raises", "argument order"),
        on_text="dot_general",
    ),
    Hint(
        "Where does your answer call the checkpointed layer, and what does it do with the array that it gets?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "In which order does the page's table list the arguments of `checkpoint_each_layer`?",
        on_kinds=("argument order",),
    ),
    Hint(
        "Your answer stores a value in one call and uses it in the next, which has other shapes. Can each call compute "
        "its own?",
        on_kinds=("raises",),
        on_text="traced in an earlier call",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return [
        [
            Saves(
                ("layer 1's output", "layer 2's output"),
                too_much="Which layer computes that value? Is the whole layer, with its sine, inside one checkpoint?",
                too_little="A value that is computed and used inside one checkpoint is not saved. Where must a "
                "checkpoint end so that a layer's output is passed to the next one?",
            ),
            Recomputes(
                count=3, too_many="From which saved value can each layer be recomputed, and how many layers are there?"
            ),
            AdvisesBarrier(),
        ]
    ]

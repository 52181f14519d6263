"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.hints import Hint
from grader.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def reference(x, W1, W2):
    """The result, and the values that an answer might save, by the names that findings give them."""
    y = x @ W1
    h = jnp.sin(y)
    z = h @ W2
    return z, {"x @ W1": y, "sin(x @ W1)": h, "cos(x @ W1)": jnp.cos(y), "the result": z}


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake("this is the value without the sine", lambda x, W1, W2: x @ W1 @ W2),
    Mistake(
        "this is the value with a sine after the second product too", lambda x, W1, W2: jnp.sin(jnp.sin(x @ W1) @ W2)
    ),
)

error_questions = (
    (r"checkpoint_name\(\)", "What does checkpoint_name take besides the value?"),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
    (
        r"dot_general|matmul|contracting|einsum",
        "Which shapes do the two operands have, and in which order are they?",
    ),
)

hints = (
    Hint(
        "Which value does the gradient of `W2` need, and which one does the derivative of the sine need? From which "
        "single value do both follow, without a matrix product?"
    ),
    Hint(
        "Follow the named value: which line makes it, and which uses it? And does the policy have the same string?",
        after=("not saved",),
    ),
    Hint(
        "A name alone changes nothing. What asks for it, and is all of the function inside of that?",
        after=("also saved",),
    ),
    Hint(
        "The sine's derivative is the cosine of what went *in*. Did you save what goes in, or what comes out?",
        after=("recomputes",),
    ),
    Hint(
        "Nearly the answer: write the function with a name on the one value, wrap it in `jax.checkpoint`, and give "
        "that a policy made by `save_only_these_names`. As a decorator: "
        "`@functools.partial(jax.checkpoint, policy=...)`."
    ),
)

requirements = (
    (
        ("float32", "float16", "vmap over x"),
        (
            Saves(
                ("x @ W1",),
                too_much="Which step made that value? From which value can both the sine and the cosine be had without "
                "a matrix product?",
                too_little="Does the next step use what checkpoint_name returns? Is the name spelled alike where it is "
                "given and where the policy asks for it?",
            ),
            Recomputes(dots=0, too_many="Which product does the backward pass need again, and what was saved instead?"),
            AdvisesBarrier(),
        ),
    ),
)

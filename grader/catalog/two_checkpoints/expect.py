"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(W1, W2, W3, x):
    """Return the result, and the values that an answer might save, by the names that findings give them."""
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


def _scale(argument):
    """Scale weights so that sin(y) differs from y for the matmuls y, which round little."""
    if argument.ndim < 2:
        return 1.0
    return (3 if argument.dtype == "bfloat16" else 1.5) / argument.shape[-1] ** 0.5  # sums of as many terms


sample_input = signed_values(0.5, 1.5, _scale)


mistakes = (
    mistake("without_last_sine", lambda W1, W2, W3, x: W3 @ jnp.sin(W2 @ jnp.sin(W1 @ x))),
    mistake("without_sines", lambda W1, W2, W3, x: W3 @ (W2 @ (W1 @ x))),
    mistake("cosines_for_sines", lambda W1, W2, W3, x: jnp.cos(W3 @ jnp.cos(W2 @ jnp.cos(W1 @ x)))),
)


def requirements(case):
    narrower = 1 if case.structure["b"] < case.structure["c"] else 2
    return [
        [
            Saves(
                (f"layer {narrower}'s output",),
                too_much="Is this value an input of a function with a checkpoint, or does an operation outside all "
                "checkpoints need it? Which of the two outputs between layers is narrower here?",
                too_little="A value that is computed and used inside one checkpoint is not saved. Where must the first "
                "checkpoint end so that the narrower output is passed to the second one?",
            ),
            Recomputes(
                count=3, too_many="From which saved value can each layer be recomputed, and how many layers are there?"
            ),
            AdvisesBarrier(),
        ]
    ]

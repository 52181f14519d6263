"""What is expected of an answer; only the judge reads this."""

import functools

import jax.numpy as jnp

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Numbers that differ from their sines by more than rounding.
sample_input = signed_values(0.2, 0.6)


def _transposed_groups(f, c, xs, outer):
    table = xs.reshape(len(xs) // outer, outer, *xs.shape[1:])
    return functools.reduce(f, jnp.swapaxes(table, 0, 1).reshape(xs.shape), c)


mistakes = (
    mistake("reverse_order", lambda f, c, xs, outer: functools.reduce(f, xs[::-1], c)),
    mistake("every_outerth_element", _transposed_groups),
    mistake(
        "last_group_alone",
        lambda f, c, xs, outer: functools.reduce(f, xs[len(xs) - len(xs) // outer :], c),
    ),
    mistake("returns_c", lambda f, c, xs, outer: c),
)


def requirements(case):
    n, outer = case.structure["n"], case.structure["outer"]
    stack = "each group's first carry"
    return [
        [
            Saves(
                # The only group starts with c, an argument.
                (stack,) if outer > 1 else (),
                too_much="How many iterations does your outer scan run, and which elements does each one get? Which "
                "function does `jax.checkpoint` wrap, if any?",
                too_little="What does your checkpointed function run: one group, or the loop over all groups? Are the "
                "carries between groups inputs of this function?",
                by_hand=True,  # with prevent_cse=False, which is right inside a scan, there is no barrier to see
                optional=() if outer > 1 else (stack, "a copy of c"),
            )
        ],
        [
            Recomputes(
                2 * n,  # a checkpoint around the step is allowed: it recomputes each step a second time
                too_many="How many times does the backward pass run each step? How many nested checkpoints contain the "
                "step?",
            )
        ],
    ]

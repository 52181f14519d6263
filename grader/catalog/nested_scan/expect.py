"""What is expected of an answer; only the judge reads this."""

import functools

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Draw numbers that differ from their sines by more than rounding."""
    size = rng.uniform(0.2, 0.6, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _transposed(f, c, xs, outer):
    table = xs.reshape(len(xs) // outer, outer, *xs.shape[1:])
    return functools.reduce(f, jnp.swapaxes(table, 0, 1).reshape(xs.shape), c)


mistakes = (
    KnownMistake(
        "it processes the elements in reverse order",
        lambda f, c, xs, outer: functools.reduce(f, xs[::-1], c),
        "In which direction does each of the two scans run? `jax.lax.scan` starts at the first row unless you pass "
        "`reverse=True`.",
    ),
    KnownMistake(
        "its groups hold every outer-th element instead of neighboring elements",
        _transposed,
        "Which elements are in the first row after your reshape? Print the array for 12 numbers and 3 groups.",
    ),
    KnownMistake(
        "this is the result of the last group alone, started from `c`",
        lambda f, c, xs, outer: functools.reduce(f, xs[len(xs) - len(xs) // outer :], c),
        "Which carry does each group start with: `c`, or the last carry of the previous group?",
    ),
    KnownMistake(
        "it returns `c` unchanged",
        lambda f, c, xs, outer: c,
        "Which of the two values that a scan body returns becomes the next iteration's carry?",
    ),
)

error_questions = (
    (
        r"Reverse-mode",
        "Is the number of iterations of each of your loops known when JAX traces it? `jax.lax.scan` always knows it.",
    ),
    (
        r"must be a pair",
        "What do the bodies of both scans return? `f` returns only the next carry; a scan body returns a pair.",
    ),
    (
        r"reshape|size",
        "How many rows does your reshape make, and how many elements are in each? What happens to the other "
        "dimensions of `xs`?",
    ),
    (r"carry", "Which two arguments does each scan body take, and which of its two results is the carry?"),
    (r"positional argument", "Which two arguments does a scan body take, and which two does `f` take?"),
    (r"leading axis|length", "How many elements does each of the two scans iterate over?"),
)

hints = (
    Hint(
        "A scan with a checkpointed body saves one carry per iteration. How many iterations should your outer scan "
        "have, and how many steps should each of them run?"
    ),
    Hint(
        "Your forward pass saves one carry per element. What does your checkpointed function run: a single step or "
        "a whole group? Wrap the function that runs a whole group.",
        on_kinds=("also saved",),
        on_text="every carry",
    ),
    Hint(
        "Your forward pass saves the cosine that each step computes. Does `jax.checkpoint` wrap a function that runs "
        "a whole group, also for this size? And does a policy make it save intermediates?",
        on_kinds=("also saved",),
        on_text="every cosine",
    ),
    Hint(
        "Is `xs` part of the carry of your outer scan? Every iteration saves its own copy of the carry. Pass the "
        "groups as the `xs` argument of the outer `jax.lax.scan` instead.",
        on_kinds=("also saved",),
        on_text="all of xs",
    ),
    Hint(
        "How many iterations does your outer scan take, and how many steps does each of them run? `outer` is the "
        "number of groups, not the size of a group.",
        on_kinds=("also saved",),
        on_text="3rd carry",
    ),
    Hint(
        "Your forward pass saves a separate array for each group. Does a Python loop run your groups? A `jax.lax.scan` "
        "over the groups stacks their carries in one array.",
        on_kinds=("also saved",),
        on_text="group 2's",
    ),
    Hint(
        "Does your answer copy elements of `xs` into groups, for example by slicing or stacking? `xs.reshape(…)` makes "
        "the groups without a copy, and the outer scan can iterate over its rows.",
        on_kinds=("also saved",),
        on_text="a copy of xs",
    ),
    Hint(
        "Your forward pass should save the carry that each group starts with, and nothing else. Does your checkpointed "
        "function run exactly one group, take that carry in the dtype of `c`, and have no policy?",
        on_kinds=("also saved", "not saved"),
    ),
    Hint(
        "Reshape the numbers 0 to 11 into 3 groups as your answer does. Is the first group 0, 1, 2, 3? Then check that "
        "each group starts with the carry that the previous group returned.",
        on_kinds=("wrong value",),
    ),
    Hint(
        "A scan body takes a carry and an element, and returns the next carry and an output. What is one element of "
        "the outer scan, and what does your inner scan return?",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "Count how often the backward pass runs each step. A checkpoint around the group runs each step once more, and "
        "one around the step runs it a second time. What runs a step a third time in your answer?",
        on_kinds=("recomputes",),
    ),
    Hint(
        "Nearly the answer: write `group(c, elements)`, which returns what a `jax.lax.scan` over the elements of one "
        "group returns. Wrap it in `jax.checkpoint`. Use it as the body of a second scan over `xs`, reshaped to "
        "`outer` rows."
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    n, outer = case.structure["n"], case.structure["outer"]
    stack = "each group's first carry"
    return [
        [
            Saves(
                # The only group starts with c, an argument.
                (stack,) if outer > 1 else (),
                too_much="How many iterations does your outer scan take, and which elements does each one get? Which "
                "function does `jax.checkpoint` wrap, if any?",
                too_little="Which function does `jax.checkpoint` wrap: one group, or the loop over all groups? Are the "
                "carries between groups its inputs?",
                by_hand=True,  # with prevent_cse=False, which is right inside a scan, there is no barrier to see
                spare=() if outer > 1 else (stack, "a copy of c"),
            )
        ],
        [
            Recomputes(
                2 * n,  # a checkpoint around the step is allowed: it recomputes each step a second time
                too_many="How often does the backward pass run each step? How many nested checkpoints is it in?",
            )
        ],
    ]

"""What is expected of an answer; only the judge reads this."""

import functools

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose sines are not about equal to them."""
    size = rng.uniform(0.2, 0.6, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _transposed(f, c, xs, outer):
    table = xs.reshape(len(xs) // outer, outer, *xs.shape[1:])
    return functools.reduce(f, jnp.swapaxes(table, 0, 1).reshape(xs.shape), c)


mistakes = (
    Mistake(
        "this is the value with the last element taken first",
        lambda f, c, xs, outer: functools.reduce(f, xs[::-1], c),
        "From which end do the two scans begin, unless they are told otherwise?",
    ),
    Mistake(
        "this is the value with groups of every outer-th element, in place of neighbours",
        _transposed,
        "Which elements stand in the first row after your reshape? Print it for 12 numbers and 3 groups.",
    ),
    Mistake(
        "this is the value of the last group alone, begun with c",
        lambda f, c, xs, outer: functools.reduce(f, xs[len(xs) - len(xs) // outer :], c),
        "With which carry does a group begin: with c, or with the last carry of the group before?",
    ),
    Mistake(
        "this is c itself",
        lambda f, c, xs, outer: c,
        "Which of the two things that a body returns goes into the next turn?",
    ),
)

error_questions = (
    (r"Reverse-mode", "Do your loops know how often they will turn? Which of JAX's loops always does?"),
    (
        r"must be a pair",
        "What do the bodies of both scans return? f returns the next carry alone, and a body two things.",
    ),
    (r"reshape|size", "Into how many rows is xs cut, of how many elements each, and what of its other dimensions?"),
    (r"carry", "Which two things does each body get, and which does it return first?"),
    (r"positional argument", "Which two things does the body of a scan take, and which two does f take?"),
    (r"leading axis|length", "Over how many elements does each of the two scans run?"),
)

hints = (
    Hint(
        "A scan whose body is in a checkpoint keeps one carry a turn. How many turns may the scan have that does this, "
        "and what must one of its turns do then?"
    ),
    Hint(
        "One carry for each element is kept. Around which body is your checkpoint: one that takes a single step, or "
        "one that takes a whole group?",
        after=("also saved",),
        says="every carry",
    ),
    Hint(
        "Cosines are kept of every step. Is each group, all of it, in a checkpoint, and one that keeps nothing of what "
        "is inside?",
        after=("also saved",),
        says="every cosine",
    ),
    Hint(
        "Is `xs` part of what your outer body hands from one group to the next? Of all that is in the carry, each turn "
        "keeps its own. Where else can a body get its elements from?",
        after=("also saved",),
        says="all of xs",
    ),
    Hint(
        "How many turns does your outer scan take, and how many the inner one? Which of the two numbers is `outer`?",
        after=("also saved",),
        says="3rd carry",
    ),
    Hint(
        "Values of single groups are kept, each by itself. What runs the groups in your answer: a Python loop, or a "
        "scan?",
        after=("also saved",),
        says="group 2's",
    ),
    Hint(
        "Where your groups are put together, is `xs` copied? `jnp.reshape` gives an array another shape without that.",
        after=("also saved",),
        says="a copy of xs",
    ),
    Hint(
        "What is in your checkpoint: one group, or all of them? What goes from one group to the next, and where is it "
        "when the backward pass begins?",
        after=("not saved",),
    ),
    Hint(
        "Take the numbers 0 to 11 and 3 groups. The first group should be 0, 1, 2, 3. Does your reshape make it so, "
        "and does each group begin with the carry that the one before ended with?",
        after=("wrong value",),
    ),
    Hint(
        "A body takes a carry and an element, and returns a carry and a result. What is the outer body's element, and "
        "what does the inner scan return?",
        after=("raises", "wrong type"),
    ),
    Hint(
        "How many checkpoints are inside each other? The outer one runs the group again, and one around the step runs "
        "each step once more, a second time. What does a third one win?",
        after=("recomputes",),
    ),
    Hint(
        "Nearly the answer: write a function `group(c, elements)` that scans over the elements of one group. It takes "
        "a carry and returns what `scan` returns, so it can be the body of another scan. Where do its elements come "
        "from, and what is put around it?"
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    n, outer = case.structure["n"], case.structure["outer"]
    stack = "each group's first carry"
    return [
        [
            Saves(
                # The only group begins with c, which is in memory anyway.
                (stack,) if outer > 1 else (),
                too_much="How many turns does your outer scan take, and which elements does it hand to each? Which "
                "body is in a checkpoint, if any?",
                too_little="What is in one checkpoint: one group, or all? Where do the carries between groups go?",
                by_hand=True,  # with prevent_cse=False, which is right inside a scan, there is no barrier to see
                spare=() if outer > 1 else (stack, "a copy of c"),
            )
        ],
        [
            Recomputes(
                2 * n,  # a step that keeps much has a checkpoint of its own, and is run once more while its group is
                too_many="How often is each step run in the backward pass? How many checkpoints is it in?",
            )
        ],
    ]

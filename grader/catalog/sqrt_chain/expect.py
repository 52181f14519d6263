"""What is expected of an answer; only the judge reads this."""

import functools
import itertools

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose sines, and those of their products, are not about equal to them."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _lengths(n, k):
    """How many functions are in each segment: as equal as can be, the longer ones first."""
    return [n // k + (number < n % k) for number in range(k)]


def _chain(fs):
    return lambda x: functools.reduce(lambda x, f: f(x), fs, x)


def _cut(fs, k):
    rest = iter(fs)
    return [[*itertools.islice(rest, length)] for length in _lengths(len(fs), k)]


def _last_segment(fs, k):
    return _cut(fs, k)[-1]


mistakes = (
    Mistake(
        "this is the value without the functions that remain when n is divided by k",
        lambda fs, k: _chain(fs[: len(fs) // k * k]),
        "How many functions are in your segments, all taken together?",
    ),
    Mistake(
        "this is the value with the last function run first",
        lambda fs, k: _chain(fs[::-1]),
        "In which order do the functions stand in the list, and in which are they called?",
    ),
    Mistake(
        "this is the value of the last segment alone",
        lambda fs, k: _chain(_last_segment(fs, k)),
        "What does each segment get: x, or what the segment before has returned?",
    ),
    Mistake(
        "this is the value with the functions dealt out to the segments in turn",
        lambda fs, k: _chain([f for number in range(k) for f in fs[number::k]]),
        "Which functions are in your first segment? Write down their places in the list.",
    ),
    Mistake(
        "this is the value with the functions of each segment in the opposite order",
        lambda fs, k: _chain([f for segment in _cut(fs, k) for f in segment[::-1]]),
        "In a chain of two functions, which one gets x, and which one gets what the other has returned?",
    ),
    Mistake(
        "this is x itself",
        lambda fs, k: lambda x: x,
        "Does your function hold a list of segments, or something that is empty once a loop has been through it, as a "
        "generator, map or zip is?",
    ),
    Mistake(
        "this is the value of the last segment, run k times",
        lambda fs, k: _chain(_last_segment(fs, k) * k),
        "A function that is made in a loop and called later: which segment does it see then, that of its turn or the "
        "last?",
    ),
)

error_questions = (
    (
        r"recursion",
        "A function that is made in a loop and called later: which function does it call then, that of its turn, or "
        "the last?",
    ),
    (r"not callable", "Which of the values in that line is a function, and which is a list or what one returned?"),
    (r"positional argument", "sqrt_chain takes the functions and k; what does the function that it returns take?"),
    (
        r"index|empty|unpack|zero|step",
        "What does that line do if k is 1, or if there are as many segments as functions?",
    ),
    (
        r"JAX type|[Tt]racer|abstract array|weak reference",
        "jax.checkpoint takes a function: does it get one, or a list of them?",
    ),
)

hints = (
    Hint("What does `jax.checkpoint` of a function keep that calls three of the functions, one after another?"),
    Hint(
        "Write down for 10 functions and k = 4 which functions are in which segment in your answer. Are there four "
        "segments, of 3, 3, 2 and 2?",
        after=("also saved", "not saved"),
    ),
    Hint(
        "The functions of the last segment keep cosines, so they are in no checkpoint. Exercise 5 left its last stage "
        "free. What is asked for here?",
        after=("also saved",),
        says=": the last segment's",
    ),
    Hint(
        "A segment begins with what is handed from one checkpoint to the next. In your answer, how many checkpoints "
        "stand side by side, and is there another one around them?",
        after=("not saved",),
        says="1 saved value",
    ),
    Hint(
        "How many functions are in each segment if `n` is no multiple of `k`? `divmod(n, k)` gives two numbers. What "
        "is the second one for?",
        after=("wrong value",),
        says="remain",
    ),
    Hint(
        "Is a function that is made in a loop called while the loop is at its turn, or later? How does it come by its "
        "own segment?",
        after=("wrong value", "raises"),
        says="made in a loop",
    ),
    Hint("How often does your answer run each of the functions in the forward pass?", after=("recomputes",)),
    Hint(
        "Nearly the answer: a helper takes a list of functions and returns one function, which runs them one after "
        "another. Wrap what it returns for each segment, and what does the helper make of the list of these?"
    ),
    Hint(
        "Of some chain every cosine is kept, so nothing of it stands in a checkpoint. What does your answer do with a "
        "list of one function, or if `k` is 1? And which of your lines calls `jax.checkpoint`?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "Take `fs = [lambda x: x + 1, lambda x: 2 * x, lambda x: x - 3]` and call `sqrt_chain(fs, 2)(10.0)`. In the "
        "right order it is 19. Which function does your answer run first, and what does each of the others get?",
        after=("wrong value",),
    ),
    Hint(
        "A list can be gone through as often as you like. What happens to an iterator when it has been gone through "
        "once, and when does your answer do that: when it is made, or when it is called with x?",
        after=("wrong value",),
        says="this is x itself",
    ),
    Hint(
        "Try the pieces alone. What is one segment: a list, a function, or what a function returned? Which of these "
        "does `jax.checkpoint` take, and which does your answer return?",
        after=("raises", "wrong type"),
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    """What goes into each segment is saved (into the first goes x); of each, all but the last product is recomputed."""
    n, k = case.structure["n"], case.structure["k"]
    ends = [sum(_lengths(n, k)[:number]) for number in range(1, k)]
    return [
        [
            Saves(
                tuple(f"fs[{end - 1}]'s output" for end in ends),
                too_much="In which of your segments is the function that makes or keeps that value? Where should that "
                "segment begin and end, and is all of it inside one checkpoint?",
                too_little="How many checkpoints stand side by side in your answer, and what is handed from one to the "
                "next?",
            ),
            Recomputes(
                n - k,
                too_many="How often is each function run in the forward pass, and how often in the backward pass?",
            ),
        ],
        # Where every function is a segment, or the only one, no barrier is missed.
        [AdvisesBarrier()],
    ]

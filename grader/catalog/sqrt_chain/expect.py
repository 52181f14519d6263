"""What is expected of an answer; only the judge reads this."""

import functools
import itertools

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Return values such that neither they nor their matmuls are close to their sines."""
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
    KnownMistake(
        "this is the value without the functions that remain when n is divided by k",
        lambda fs, k: _chain(fs[: len(fs) // k * k]),
        "How many functions do your segments have in total?",
    ),
    KnownMistake(
        "this is the value with the last function run first",
        lambda fs, k: _chain(fs[::-1]),
        "In which order are the functions in the list, and in which order do you call them?",
    ),
    KnownMistake(
        "this is the value of the last segment alone",
        lambda fs, k: _chain(_last_segment(fs, k)),
        "With what do you call each segment: x, or what the previous segment returned?",
    ),
    KnownMistake(
        "this is the value with every k-th function in the same segment instead of neighboring functions",
        lambda fs, k: _chain([f for number in range(k) for f in fs[number::k]]),
        "Which functions are in your first segment? Write down their positions in the list.",
    ),
    KnownMistake(
        "this is the value with the functions of each segment run in reverse order",
        lambda fs, k: _chain([f for segment in _cut(fs, k) for f in segment[::-1]]),
        "In a chain of two functions, which one gets x, and which one gets the result of the other?",
    ),
    KnownMistake(
        "this is x itself",
        lambda fs, k: lambda x: x,
        "Does your function use a list of segments, or an iterator (a generator, map or zip), which is empty after the "
        "first loop?",
    ),
    KnownMistake(
        "this is the value of the last segment, run k times",
        lambda fs, k: _chain(_last_segment(fs, k) * k),
        "A function that is made in a loop looks its segment up when it is called. Is that the segment of its own "
        "iteration, or the last one?",
    ),
)

error_questions = (
    (
        r"recursion",
        "A function that is made in a loop looks up what it calls when it runs. Is that the function of its own "
        "iteration, or the last one?",
    ),
    (r"not callable", "What does that line call: a function, a list, or what a function returned?"),
    (r"positional argument", "sqrt_chain takes the functions and k. What does the function that it returns take?"),
    (
        r"index|empty|unpack|zero|step",
        "What does that line do if k is 1, or if there are as many segments as functions?",
    ),
    (
        r"JAX type|[Tt]racer|abstract array|weak reference",
        "jax.checkpoint takes a function. Does it get one, or a list of them?",
    ),
)

hints = (
    Hint(
        "Suppose that one function calls three of the functions, one after another. What does `jax.checkpoint` of this "
        "function save?"
    ),
    Hint(
        "For 10 functions and `k = 4`, write down which functions are in which segment of your answer. Are there four "
        "segments, of 3, 3, 2 and 2 functions?",
        on_kinds=("also saved", "not saved"),
    ),
    Hint(
        "The functions of the last segment save their cosines, so they are in no checkpoint. In exercise 5 the last "
        "stage had none. What does this exercise ask for?",
        on_kinds=("also saved",),
        on_text=": the last segment's",
    ),
    Hint(
        "A value that is passed from one checkpoint to the next is saved. How many checkpoints does your answer have "
        "one after another, and is there another one around them?",
        on_kinds=("not saved",),
        on_text="no computed value",
    ),
    Hint(
        "How many functions are in each segment if `n` is not a multiple of `k`? `divmod(n, k)` gives two numbers. "
        "What is the second one for?",
        on_kinds=("wrong value",),
        on_text="remain",
    ),
    Hint(
        "A function that is made in a loop is called later, when the loop is over. How does yours get its own segment?",
        on_kinds=("wrong value", "raises"),
        on_text="made in a loop",
    ),
    Hint(
        "How many times does your answer run each function in the forward pass, and how many times in the backward "
        "pass?",
        on_kinds=("recomputes",),
    ),
    Hint(
        "Nearly the answer: a helper takes a list of functions and returns one function that runs them one after "
        "another. Call it for each segment, and wrap each result in `jax.checkpoint`. What does the helper return for "
        "the list of these?"
    ),
    Hint(
        "Every cosine is saved in the cases that the finding names, so no function is inside a checkpoint there. What "
        "does your answer do with a list of one function, or if `k` is 1? Which of your lines calls `jax.checkpoint`?",
        on_kinds=("also saved",),
        on_text="Which function marks",
    ),
    Hint(
        "Take `fs = [lambda x: x + 1, lambda x: 2 * x, lambda x: x - 3]` and call `sqrt_chain(fs, 2)(10.0)`. The right "
        "value is 19. Which function does your answer run first, and what are the others called with?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "You can loop over a list any number of times, but over an iterator only once. Does your answer create the "
        "iterator once, or each time that your function is called with `x`?",
        on_kinds=("wrong value",),
        on_text="this is x itself",
    ),
    Hint(
        "Try each step in a cell of its own. Is one segment of yours a list, a function, or what a function returned? "
        "Which of these does `jax.checkpoint` take, and which does your answer return?",
        on_kinds=("raises", "wrong type"),
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    """Each segment saves its input (that of the first is x) and recomputes all its matmuls but the last."""
    n, k = case.structure["n"], case.structure["k"]
    ends = [sum(_lengths(n, k)[:number]) for number in range(1, k)]
    return [
        [
            Saves(
                tuple(f"fs[{end - 1}]'s output" for end in ends),
                too_much="Which of your segments contains the function that computes that value? Where should the "
                "segment begin and end, and is all of it inside one checkpoint?",
                too_little="How many checkpoints does your answer have one after another, and which values are passed "
                "from one to the next?",
            ),
            Recomputes(
                n - k,
                too_many="How many times is each function run in the forward pass, and how many times in the backward?",
            ),
        ],
        # Where every function is a segment, or the only one, no barrier is missed.
        [AdvisesBarrier()],
    ]

"""What is expected of an answer; only the judge reads this."""

import functools

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import PeakAtMost
from grader.exercises.requirements import KnownMistake, Recomputes, RecomputesNoLess, Saves


def sample_input(rng, argument):
    """Return values such that neither they nor their matmuls are close to their sines."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _chain(funs):
    return lambda x: functools.reduce(lambda x, f: f(x), funs[::-1], x)


def _halves_exchanged(funs):
    if len(funs) <= 2:
        return funs
    middle = len(funs) // 2
    return _halves_exchanged(funs[middle:]) + _halves_exchanged(funs[:middle])


mistakes = (
    KnownMistake(
        "this is the value with funs[0] run first",
        lambda funs: _chain(funs[::-1]),
        "In `f1(f2(x))`, which of the two runs first?",
    ),
    KnownMistake(
        "this is the value with the first half of a list run before the second",
        lambda funs: _chain(_halves_exchanged(funs)),
        "In `f1(f2(x))`, which of the two runs first? Which half of the list is each of them in your answer?",
    ),
    KnownMistake(
        "this is the value of the first half of the list alone",
        lambda funs: _chain(funs[: max(1, len(funs) // 2)]),
        "With what do you call each half: x, or what the other half returned?",
    ),
    KnownMistake(
        "this is the value of the second half of the list alone",
        lambda funs: _chain(funs[len(funs) // 2 :]),
        "Where does your answer call the other half?",
    ),
)

error_questions = (
    (r"recursion", "For how many functions does the recursion end, and does each call get fewer than the one before?"),
    (r"index|unpack", "What does that line do for a list of one function, or of two?"),
    (r"not callable", "What does that line call: a function, a list, or what a function returned?"),
    (r"positional argument", "Which function do you call with the list, and which with x?"),
    (
        r"JAX type|[Tt]racer|abstract array|weak reference",
        "jax.checkpoint takes a function. Does it get one, or a list of them?",
    ),
)

hints = (
    Hint(
        "Suppose that you have one function for each half of the list. How do you combine the two into a function that "
        "runs the whole list?"
    ),
    Hint(
        "A wrapped half saves only its input, and the other half saves its own residuals. Which half does the backward "
        "pass need first, and which one later?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Every function saves its cosine in the cases that the finding names, so none is inside a checkpoint. Which "
        "half of the list does the backward pass need last, and what could be saved of it instead of all the cosines?",
        on_kinds=("also saved",),
        on_text="Which function marks",
    ),
    Hint(
        "When does your recursion stop halving? Lists of one or two functions are run without a checkpoint, and longer "
        "lists are halved.",
        on_kinds=("also saved",),
        on_text=(": funs[3]'s cosine", "8 functions"),
    ),
    Hint(
        "Which functions does the outermost call wrap, and is there another checkpoint around them?",
        on_kinds=("not saved",),
    ),
    Hint(
        "What happens when the backward pass recomputes the wrapped half? Does it save something for each of its "
        "functions then, or is it halved like the whole list?",
        on_kinds=("peak",),
    ),
    Hint(
        "With `prevent_cse=False`, XLA may reuse a value from the forward pass instead of recomputing it. What does "
        "`jax.checkpoint` do if you do not set this option?",
        on_kinds=("peak",),
        on_text="prevent_cse=False",
    ),
    Hint(
        "How many times does your answer run each function? Does it run something whose result it does not use?",
        on_kinds=("recomputes",),
    ),
    Hint(
        "Nearly the answer: return a single function as it is, and `lambda x: f1(f2(x))` for two. For a longer list, "
        "call `recursive_checkpoint` for the first half (`f1`) and for the second half (`f2`). Which of the two goes "
        "into `jax.checkpoint`?"
    ),
    Hint(
        "The output of `funs[2]` is saved because a checkpoint begins after it. Which halves does your answer wrap, "
        "and what does it do with a list of two functions?",
        on_kinds=("also saved",),
        on_text=(": funs[2]'s output", "8 functions"),
    ),
    Hint(
        "The output of `funs[7]` is computed inside the half that is wrapped. Which option of `jax.checkpoint` can "
        "save such a value, and what is saved without that option?",
        on_kinds=("also saved",),
        on_text="funs[7]'s output",
    ),
    Hint(
        "What is inside the wrapped half: its functions one after another, or what your function returns for that "
        "list? For 8 functions, write down each list that your function is called with.",
        on_kinds=("recomputes",),
        on_text="computes only",
    ),
    Hint(
        "Take `funs = [lambda x: x + 1, lambda x: 2 * x]` and call `recursive_checkpoint(funs)(10.0)`. The last "
        "function runs first, so the right value is 21. What does your answer give, and which half of a longer list "
        "gets `x`?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "Try each step in a cell of its own: what does your function return for a list of one, two, or four functions? "
        "Is it a function of `x` each time, and what does `jax.checkpoint` get?",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "How many times does your answer call each half, and what does it do with the result of each call?",
        on_kinds=("extra matmuls",),
    ),
    *ABOUT_ERRORS,
)


def _kept(n):
    """The inputs of the wrapped halves, of which the first gets x, and what the two functions keep that run last."""
    halves = [2**power for power in range(n.bit_length() - 2, 1, -1)]
    return (*(f"funs[{half}]'s output" for half in halves), *(f"funs[{place}]'s cosine" for place in range(min(n, 2))))


def requirements(case):
    n, (x,) = case.structure["n"], case.arguments
    # Each halving runs half of the functions again, but the last one of each half that is wrapped.
    again = n // 2 * (n.bit_length() - 1) + 1 - n
    large = x.size > 2_000 and x.dtype == "float32"  # half precision XLA computes in full
    peak = PeakAtMost(
        n.bit_length(),
        compiled=large,
        too_high="When the backward pass recomputes the wrapped half, what is saved for each of its functions?",
        merged="Which option of jax.checkpoint prevents XLA from doing that, and what is its default?",
    )
    return [
        [
            Saves(
                _kept(n),
                too_much="Which half of each list does your answer wrap, and which half does the backward pass need "
                "first? How many functions does a list have when your answer stops halving?",
                too_little="Is there a checkpoint around funs[0] and funs[1], which run last?",
            ),
            Recomputes(again, too_many="How many times is each function run, and by which of your checkpoints?"),
            *([peak] if n == 32 else []),
        ],
        [
            RecomputesNoLess(
                again,
                too_few="Do you make the wrapped half in the same way as the whole, down to lists of two?",
            )
        ],
        [peak] if 4 < n < 32 else [],  # of two functions or four there is nothing to see
    ]

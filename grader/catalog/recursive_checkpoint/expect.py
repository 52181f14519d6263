"""What is expected of an answer; only the judge reads this."""

import functools

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import PeakAtMost
from grader.exercises.requirements import Mistake, Recomputes, RecomputesNoLess, Saves


def draw(rng, argument):
    """Numbers whose sines, and those of their products, are not about equal to them."""
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
    Mistake(
        "this is the value with funs[0] run first",
        lambda funs: _chain(funs[::-1]),
        "In `f1(f2(x))`, which of the two runs first?",
    ),
    Mistake(
        "this is the value with the first half of a list run before the second",
        lambda funs: _chain(_halves_exchanged(funs)),
        "In `f1(f2(x))`, which of the two runs first? Which half of the list is each of them in your answer?",
    ),
    Mistake(
        "this is the value of the first half of the list alone",
        lambda funs: _chain(funs[: max(1, len(funs) // 2)]),
        "What does each half get: x, or what the other half has returned?",
    ),
    Mistake(
        "this is the value of the second half of the list alone",
        lambda funs: _chain(funs[len(funs) // 2 :]),
        "Where does your answer call the other half?",
    ),
)

error_questions = (
    (r"recursion", "For how many functions does the recursion end, and does each call get fewer than the one before?"),
    (r"index|unpack", "What does that line do for a list of one function, or of two?"),
    (r"not callable", "Which of the values in that line is a function, and which is a list or what one returned?"),
    (r"positional argument", "What do you call with the list, and what with x?"),
    (
        r"JAX type|[Tt]racer|abstract array|weak reference",
        "jax.checkpoint takes a function: does it get one, or a list of them?",
    ),
)

hints = (
    Hint("If you have a function for each half of the list, how do you make one of them that runs the whole list?"),
    Hint(
        "Of the half that is wrapped only its input is kept. Of the other half all is kept that it keeps itself. "
        "Which of the two does the backward pass need first, and which can wait?",
        after=("also saved",),
    ),
    Hint(
        "When does your recursion stop to cut? Lists of two are run without a checkpoint, and longer ones are not.",
        after=("also saved",),
        says=(": funs[3]'s cosine", "8 functions"),
    ),
    Hint(
        "Which functions does the outermost call wrap, and is there another checkpoint around that?",
        after=("not saved",),
    ),
    Hint(
        "What happens when the wrapped half is run again: does it keep something of each of its functions then, or is "
        "it cut in two like the whole?",
        after=("peak",),
    ),
    Hint(
        "With `prevent_cse=False` XLA takes what the first run of a function computed for what the second one should. "
        "What does `jax.checkpoint` do when you do not set it?",
        after=("peak",),
        says="prevent_cse=False",
    ),
    Hint("Does anything run in your answer whose result is not used?", after=("recomputes",)),
    Hint(
        "Nearly the answer: for one function return it, for two return `lambda x: f1(f2(x))`. Else make `f1` of the "
        "first half of the list and `f2` of the second, both by calling `recursive_checkpoint`. Which of them goes "
        "into `jax.checkpoint`?"
    ),
    Hint(
        "Every function of a longer list keeps its cosine, so none stands in a checkpoint. Which half of the list is "
        "wanted last by the backward pass, and what could be kept of it in place of all the cosines?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "Something of single functions is kept, each by itself. What does your answer do with a list of two functions, "
        "and what does the page say of it?",
        after=("also saved",),
        says=(": funs[2]'s output", "8 functions"),
    ),
    Hint(
        "What `funs[7]` returns is made inside the half that is wrapped. Which option of `jax.checkpoint` may keep "
        "such a value, and what is kept if it is left out?",
        after=("also saved",),
        says="funs[7]'s output",
    ),
    Hint(
        "What is in the half that is wrapped: the functions one after another, or what your function makes of that "
        "list? For 8 functions, write down which lists your function is called with.",
        after=("recomputes",),
        says="computes only",
    ),
    Hint(
        "Take `funs = [lambda x: x + 1, lambda x: 2 * x]` and call `recursive_checkpoint(funs)(10.0)`. The last of the "
        "list runs first, so it is 21. What is it for your answer, and which half of a longer list gets x?",
        after=("wrong value",),
    ),
    Hint(
        "Try the pieces alone: what does your function return for a list of one, of two, of four? Is it a function of "
        "x every time, and what does `jax.checkpoint` get?",
        after=("raises", "wrong type"),
    ),
    Hint(
        "A half is run, and something of it once more. How often does your answer call each half, and where does the "
        "result of each call go?",
        after=("extra matmuls",),
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
        too_high="When the half that is wrapped is run again, what is kept of each of its functions?",
        merged="Which option of jax.checkpoint keeps the compiler from doing that, and what is its default?",
    )
    return [
        [
            Saves(
                _kept(n),
                too_much="Which half of each list does your answer wrap, and which half does the backward pass need "
                "first? How many functions are left when it stops to cut?",
                too_little="Is there a checkpoint around what runs last, funs[0] and funs[1]?",
            ),
            Recomputes(again, too_many="How often is each function run, and by which of your checkpoints?"),
            *([peak] if n == 32 else []),
        ],
        [
            RecomputesNoLess(
                again,
                too_few="Is the half that is wrapped made in the same way as the whole, down to lists of two?",
            )
        ],
        [peak] if n > 4 else [],  # of two functions or four there is nothing to see
    ]

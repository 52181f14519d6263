"""What is expected of an answer; only the judge reads this."""

import functools

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.peaks import PeakAtMost
from grader.exercises.requirements import Recomputes, RecomputesNoLess, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Values such that neither they nor their matmuls are close to their sines.
sample_input = signed_values(0.5, 1.5)


def _compose(funs):
    return lambda x: functools.reduce(lambda x, f: f(x), funs[::-1], x)


def _halves_exchanged(funs):
    if len(funs) <= 2:
        return funs
    middle = len(funs) // 2
    return _halves_exchanged(funs[middle:]) + _halves_exchanged(funs[:middle])


mistakes = (
    mistake("value_funs_0_run_first", lambda funs: _compose(funs[::-1])),
    mistake("value_first_half_list_run", lambda funs: _compose(_halves_exchanged(funs))),
    mistake("value_first_half_list_alone", lambda funs: _compose(funs[: max(1, len(funs) // 2)])),
    mistake("value_second_half_list_alone", lambda funs: _compose(funs[len(funs) // 2 :])),
)


def _saved_inputs(n):
    """Return the inputs of the wrapped halves, of which the first gets x, and what the two functions keep that run
    last."""
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
                _saved_inputs(n),
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

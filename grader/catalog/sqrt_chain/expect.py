"""What is expected of an answer; only the judge reads this."""

import functools
import itertools

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import AdvisesBarrier, Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Values such that neither they nor their matmuls are close to their sines.
sample_input = signed_values(0.5, 1.5)


def _segment_lengths(n, k):
    """Return how many functions are in each segment: as equal as can be, the longer ones first."""
    return [n // k + (number < n % k) for number in range(k)]


def _compose(fs):
    return lambda x: functools.reduce(lambda x, f: f(x), fs, x)


def _cut_into_segments(fs, k):
    rest = iter(fs)
    return [[*itertools.islice(rest, length)] for length in _segment_lengths(len(fs), k)]


def _last_segment(fs, k):
    return _cut_into_segments(fs, k)[-1]


mistakes = (
    mistake("value_without_functions_remain_n", lambda fs, k: _compose(fs[: len(fs) // k * k])),
    mistake("value_last_function_run_first", lambda fs, k: _compose(fs[::-1])),
    mistake("value_last_segment_alone", lambda fs, k: _compose(_last_segment(fs, k))),
    mistake("value_every_k_th_function", lambda fs, k: _compose([f for number in range(k) for f in fs[number::k]])),
    mistake(
        "value_functions_segment_run_reverse",
        lambda fs, k: _compose([f for segment in _cut_into_segments(fs, k) for f in segment[::-1]]),
    ),
    mistake("x_itself", lambda fs, k: lambda x: x),
    mistake("value_last_segment_run_k", lambda fs, k: _compose(_last_segment(fs, k) * k)),
)


def requirements(case):
    """Require that each segment saves its input (that of the first is x) and recomputes all its
    matmuls but the last."""
    n, k = case.structure["n"], case.structure["k"]
    ends = [sum(_segment_lengths(n, k)[:number]) for number in range(1, k)]
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

"""Wrong answers to sqrt_chain, each with the finding that must name its mistake."""

import functools
import itertools
import math

import jax
import numpy as np
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
TEN, FOUR, THREE, TWO = ALL = (
    "10 functions in 4 segments",
    "4 functions in 2 segments with one function twice and under vmap",
    "3 functions in 3 segments, used a second time",
    "2 functions in 1 segment",
)
COUNTS = {TEN: (10, 4), FOUR: (4, 2), THREE: (3, 3), TWO: (2, 1)}


def chain(fs):
    return lambda x: functools.reduce(lambda x, f: f(x), fs, x)


def wrapped(segments):
    return chain([jax.checkpoint(chain(segment)) for segment in segments])


def of_length(fs, length):
    return [fs[start : start + length] for start in range(0, len(fs), length)]


def right(fs, k):
    return wrapped(np.array_split(fs, k))


@fails_with("also saved", "fs[0]'s cosine, f32[", "fs[9]'s cosine", "Which function marks", cases=(TEN,))
def no_checkpoint(fs, k):
    return chain(fs)


@fails_with("also saved", "fs[0]'s output", "fs[8]'s output", "all of it inside one", cases=(TEN,))
def each_function_by_itself(fs, k):
    return chain([*map(jax.checkpoint, fs)])


@fails_with("not saved", "fs[2]'s output", "1 saved value", "stand side by side", cases=(TEN,))
def one_around_all(fs, k):
    return jax.checkpoint(chain(fs))


@fails_with("not saved", "fs[7]'s output", "1 saved value", "stand side by side", cases=(TEN,))
def one_around_all_segments(fs, k):
    return jax.checkpoint(right(fs, k))


@fails_with("also saved", "fs[8]'s cosine", "fs[9]'s cosine", "all of it inside one", cases=(TEN,))
def last_segment_free(fs, k):
    *earlier, last = np.array_split(fs, k)
    return chain([wrapped(earlier), chain(last)])


@fails_with("also saved", "fs[3]'s output", "begin and end", cases=(TEN,))
def segments_of_k(fs, k):
    return wrapped(of_length(fs, k))


@fails_with("also saved", "fs[1]'s output", "fs[5]'s output", "begin and end", cases=(TEN,))
def the_rest_in_a_segment_more(fs, k):
    return wrapped(of_length(fs, len(fs) // k))


@fails_with("also saved", "fs[1]'s output", "fs[3]'s output", "begin and end", cases=(TEN,))
def the_shorter_ones_first(fs, k):
    return wrapped([segment[::-1] for segment in np.array_split(fs[::-1], k)][::-1])


@fails_with("also saved", "fs[3]'s output", "begin and end", cases=(TEN,))
def the_rest_in_the_first_segment(fs, k):
    length, rest = divmod(len(fs), k)
    return wrapped([fs[: length + rest], *of_length(fs[length + rest :], length)])


@fails_with("also saved", "fs[4]'s output", "begin and end", cases=(TEN,))
def longer_and_shorter_in_turn(fs, k):
    """Lengths differ by one at most, but the longer ones do not come first: 3, 2, 3, 2."""
    ends = [-(-len(fs) * number // k) for number in range(k + 1)]
    return wrapped([fs[start:end] for start, end in itertools.pairwise(ends)])


@fails_with("also saved", "fs[8]'s output", "begin and end", cases=(TEN,))
def as_long_as_the_longest(fs, k):
    return wrapped(of_length(fs, -(-len(fs) // k)))


@fails_with("also saved", "fs[1]'s output", "fs[3]'s output", "begin and end", cases=(TEN,))
def the_rest_in_the_last_segment(fs, k):
    length = len(fs) // k
    starts = [number * length for number in range(k)]
    return wrapped([fs[start:end] for start, end in zip(starts, [*starts[1:], len(fs)], strict=True)])


@fails_with("also saved", "fs[4]'s output", cases=(TEN,))
def half_the_segments(fs, k):
    return wrapped(np.array_split(fs, max(1, k // 2)))


@fails_with("also saved", "fs[3]'s output", "fs[6]'s output", cases=(TEN,))
def k_by_the_square_root(fs, k):
    return wrapped(np.array_split(fs, math.isqrt(len(fs))))


@fails_with("also saved", "fs[0]'s output", "fs[1]'s output", cases=(TEN,))
def products_kept(fs, k):
    keep = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    return chain([keep(chain(segment)) for segment in np.array_split(fs, k)])


@fails_with("wrong value", "the functions that remain when n is divided", "taken together", cases=(TEN,))
def the_rest_dropped(fs, k):
    return right(fs[: len(fs) // k * k], k)


@fails_with("wrong value", "dealt out to the segments in turn", "in your first segment", cases=(TEN, FOUR))
def every_kth(fs, k):
    return wrapped([fs[number::k] for number in range(k)])


@fails_with("wrong value", "the functions of each segment in the opposite order", "gets x", cases=(TEN, FOUR, TWO))
def f_of_g(fs, k):
    return wrapped([segment[::-1] for segment in np.array_split(fs, k)])


@fails_with("wrong value", "this is x itself", "as a generator, map or zip is", cases=(THREE,))
def segments_in_an_iterator(fs, k):
    return chain(map(jax.checkpoint, map(chain, np.array_split(fs, k))))


@fails_with("wrong value", "with the last function run first", "In which order", cases=ALL)
def in_the_other_order(fs, k):
    return right(fs[::-1], k)


@fails_with("wrong value", "the last segment alone", "what the segment before has returned", cases=(TEN, FOUR, THREE))
def each_segment_on_x(fs, k):
    def run(x):
        for segment in np.array_split(fs, k):
            z = jax.checkpoint(chain(segment))(x)
        return z

    return run


@fails_with("wrong value", "the last segment, run k times", "that of its turn", cases=(TEN, FOUR, THREE))
def late_binding(fs, k):
    segments = []
    for segment in np.array_split(fs, k):
        segments.append(jax.checkpoint(lambda x: chain(segment)(x)))  # noqa: B023
    return chain(segments)


@fails_with("raises", "list", "does it get one, or a list", cases=ALL)
def segments_as_lists(fs, k):
    return chain([jax.checkpoint(segment.tolist()) for segment in np.array_split(fs, k)])


@fails_with("wrong type", "returns a list, not a function", "What should sqrt_chain(fs, k) return?", cases=ALL)
def a_list(fs, k):
    return [jax.checkpoint(chain(segment)) for segment in np.array_split(fs, k)]


@fails_with("raises", "positional argument", "what does the function that it returns take", cases=ALL)
def called_without_x(fs, k):
    return right(fs, k)()


def free_for(count):
    """Right, but for a chain of this length there is no checkpoint."""
    return lambda fs, k: chain(fs) if len(fs) == count else right(fs, k)


def twice_for(count):
    """Right, but a chain of this length runs once more, all of it in one checkpoint."""

    def answer(fs, k):
        if len(fs) != count:
            return right(fs, k)
        return lambda x: (right(fs, k)(x) + jax.checkpoint(chain(fs))(x)) / 2

    return answer


for case, (n, k) in COUNTS.items():
    free, twice = free_for(n), twice_for(n)
    free.__name__, twice.__name__ = f"no_checkpoint_for_{n}", f"each_twice_for_{n}"
    fails_with("also saved", "fs[0]'s cosine", "Which function marks", cases=(case,))(free)
    fails_with("recomputes", f"{2 * n - k - 1} matmul", "How often is each function run", cases=(case,))(twice)

"""Wrong answers to sqrt_chain, each with the finding that must name its mistake."""

import functools
import itertools
import math

import jax
import numpy as np
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def chain(fs):
    return lambda x: functools.reduce(lambda x, f: f(x), fs, x)


def wrapped(segments):
    return chain([jax.checkpoint(chain(segment)) for segment in segments])


def of_length(fs, length):
    return [fs[start : start + length] for start in range(0, len(fs), length)]


def right(fs, k):
    return wrapped(np.array_split(fs, k))


@fails_with("also saved", "fs[0]'s cosine, f32[", "the last segment's cosine of fs[9]", "Which function marks")
def no_checkpoint(fs, k):
    return chain(fs)


@fails_with("also saved", "fs[0]'s output", "fs[8]'s output", "all of it inside one")
def each_function_by_itself(fs, k):
    return chain([*map(jax.checkpoint, fs)])


@fails_with("not saved", "fs[2]'s output", "no computed value", "one after another")
def one_around_all(fs, k):
    return jax.checkpoint(chain(fs))


@fails_with("not saved", "fs[7]'s output", "no computed value", "one after another")
def one_around_all_segments(fs, k):
    return jax.checkpoint(right(fs, k))


@fails_with("also saved", ": the last segment's cosine of fs[8]", "fs[9]", "all of it inside one")
def last_segment_free(fs, k):
    *earlier, last = np.array_split(fs, k)
    return chain([wrapped(earlier), chain(last)])


@fails_with("also saved", "fs[3]'s output", "begin and end")
def segments_of_k(fs, k):
    return wrapped(of_length(fs, k))


@fails_with("also saved", "fs[1]'s output", "fs[5]'s output", "begin and end")
def the_rest_in_a_segment_more(fs, k):
    return wrapped(of_length(fs, len(fs) // k))


@fails_with("also saved", "fs[1]'s output", "fs[3]'s output", "begin and end")
def the_shorter_ones_first(fs, k):
    return wrapped([segment[::-1] for segment in np.array_split(fs[::-1], k)][::-1])


@fails_with("also saved", "fs[3]'s output", "begin and end")
def the_rest_in_the_first_segment(fs, k):
    length, rest = divmod(len(fs), k)
    return wrapped([fs[: length + rest], *of_length(fs[length + rest :], length)])


@fails_with("also saved", "fs[4]'s output", "begin and end")
def longer_and_shorter_in_turn(fs, k):
    """Lengths differ by one at most, but the longer ones do not come first: 3, 2, 3, 2."""
    ends = [-(-len(fs) * number // k) for number in range(k + 1)]
    return wrapped([fs[start:end] for start, end in itertools.pairwise(ends)])


@fails_with("also saved", "fs[8]'s output", "begin and end")
def as_long_as_the_longest(fs, k):
    return wrapped(of_length(fs, -(-len(fs) // k)))


@fails_with("also saved", "fs[1]'s output", "fs[3]'s output", "begin and end")
def the_rest_in_the_last_segment(fs, k):
    length = len(fs) // k
    starts = [number * length for number in range(k)]
    return wrapped([fs[start:end] for start, end in zip(starts, [*starts[1:], len(fs)], strict=True)])


@fails_with("also saved", "fs[4]'s output")
def half_the_segments(fs, k):
    return wrapped(np.array_split(fs, max(1, k // 2)))


@fails_with("also saved", "fs[3]'s output", "fs[6]'s output")
def k_by_the_square_root(fs, k):
    return wrapped(np.array_split(fs, math.isqrt(len(fs))))


@fails_with("also saved", "fs[0]'s output", "fs[1]'s output")
def products_kept(fs, k):
    keep = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    return chain([keep(chain(segment)) for segment in np.array_split(fs, k)])


@fails_with("wrong value", "the functions that remain when n is divided", "have in total")
def the_rest_dropped(fs, k):
    return right(fs[: len(fs) // k * k], k)


@fails_with("wrong value", "every k-th function in the same segment", "in your first segment")
def every_kth(fs, k):
    return wrapped([fs[number::k] for number in range(k)])


@fails_with("wrong value", "the functions of each segment run in reverse order", "gets x")
def f_of_g(fs, k):
    return wrapped([segment[::-1] for segment in np.array_split(fs, k)])


@fails_with("wrong value", "this is x itself", "a generator, map or zip")
def segments_in_an_iterator(fs, k):
    return chain(map(jax.checkpoint, map(chain, np.array_split(fs, k))))


@fails_with("wrong value", "with the last function run first", "In which order")
def in_the_other_order(fs, k):
    return right(fs[::-1], k)


@fails_with("wrong value", "the last segment alone", "what the previous segment returned")
def each_segment_on_x(fs, k):
    def run(x):
        for segment in np.array_split(fs, k):
            z = jax.checkpoint(chain(segment))(x)
        return z

    return run


@fails_with("wrong value", "the last segment, run k times", "the segment of its own")
def late_binding(fs, k):
    segments = []
    for segment in np.array_split(fs, k):
        segments.append(jax.checkpoint(lambda x: chain(segment)(x)))  # noqa: B023
    return chain(segments)


@fails_with("raises", "list", "Does it get one, or a list")
def segments_as_lists(fs, k):
    return chain([jax.checkpoint(segment.tolist()) for segment in np.array_split(fs, k)])


@fails_with("wrong type", "returns a list, not a function", "What should sqrt_chain(fs, k) return?")
def a_list(fs, k):
    return [jax.checkpoint(chain(segment)) for segment in np.array_split(fs, k)]


@fails_with("raises", "positional argument", "What does the function that it returns take")
def called_without_x(fs, k):
    return right(fs, k)()


def free(fs, k):
    return chain(fs)


def twice(fs, k):
    """All of it runs once more, in one checkpoint."""
    return lambda x: (right(fs, k)(x) + jax.checkpoint(chain(fs))(x)) / 2


def one_segment_less(fs, k):
    return right(fs, k - 1)


def unlike_the_others(other, holds):
    """Right, but for the structures of which this is true: there it is another answer."""
    return lambda fs, k: (other if holds(len(fs), k) else right)(fs, k)


NOWHERE, FEWER, OFTEN = "Which function marks", "one after another", "How many times is each function run"
for name, other, holds, kind, *words in (
    ("free_if_alone", free, lambda n, k: n == 1, "also saved", "cosine of fs[0]", NOWHERE),
    ("free_in_one_segment", free, lambda n, k: k == 1 < n, "also saved", "cosine of fs[0]", NOWHERE),
    ("free_beyond_ten", free, lambda n, k: n > 10 and 1 < k < n, "also saved", "fs[0]'s cosine", NOWHERE),
    (
        "free_if_k_divides_n",
        free,
        lambda n, k: 1 < k < n and n % k == 0,
        "also saved",
        "fs[0]'s cosine",
        "Which function marks",
    ),
    ("one_less_than_all", one_segment_less, lambda n, k: n == k > 1, "not saved", "fs[0]'s output", FEWER),
    ("one_less_beyond_ten", one_segment_less, lambda n, k: n > 10 and k > 1, "not saved", "fs["),
    ("free_if_a_segment_has_k", free, lambda n, k: n == k * k > 1, "also saved", "cosine of fs[", NOWHERE),
    ("twice_for_ten", twice, lambda n, k: n == 10, "recomputes", "recomputes 15 matmuls", OFTEN),
    ("twice_for_the_most", twice, lambda n, k: n == 24, "recomputes", "matmuls", OFTEN),
):
    answer = unlike_the_others(other, holds)
    answer.__name__ = name
    fails_with(kind, *words)(answer)


@fails_with("wrong value", "value is wrong")
def places_looked_up(fs, k):
    """Right, if no function comes twice."""
    starts = [fs.index(segment[0]) for segment in np.array_split(fs, k)]
    return wrapped([fs[start:end] for start, end in zip(starts, [*starts[1:], len(fs)], strict=True)])


@fails_with("also saved", "the last segment's cosine of fs[0], f16[", "Which function marks")
def free_in_float16(fs, k):
    return lambda x: (chain(fs) if x.dtype == np.float16 else right(fs, k))(x)


@fails_with("also saved", "the last segment's cosine of fs[0], f32[", "Which function marks")
def free_for_vectors(fs, k):
    return lambda x: (chain(fs) if x.ndim == 1 else right(fs, k))(x)


@fails_with("also saved", "the last segment's cosine of fs[")
def free_if_it_ends_as_it_begins(fs, k):
    return (free if fs[0] is fs[-1] else right)(fs, k)


@fails_with("recomputes", "7 matmuls", "How many times is each function run", beyond="Recomputes.count")
def first_function_once_more(fs, k):
    return lambda x: right(fs, k)(also_run_backward(fs[0], x, x))

"""Wrong answers to recursive_checkpoint, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def chain(funs):
    return lambda x: functools.reduce(lambda x, f: f(x), funs[::-1], x)


def halves(funs, join, leaf=2):
    """The recursion, with the two halves joined in a way of the answer's."""
    if len(funs) <= leaf:
        return chain(funs)
    middle = len(funs) // 2
    return join(halves(funs[:middle], join, leaf), halves(funs[middle:], join, leaf))


def right(funs):
    return halves(funs, lambda f1, f2: lambda x: f1(jax.checkpoint(f2)(x)))


@fails_with("also saved", "funs[7]'s cosine", "need first")
def wraps_f1(funs):
    return halves(funs, lambda f1, f2: lambda x: jax.checkpoint(f1)(f2(x)))


@fails_with("not saved", "funs[4]'s output", "funs[0] and funs[1]")
def wraps_the_root(funs):
    return jax.checkpoint(right(funs))


@fails_with("not saved", "funs[0]'s cosine")
def wraps_both(funs):
    return halves(funs, lambda f1, f2: lambda x: jax.checkpoint(f1)(jax.checkpoint(f2)(x)))


@fails_with("also saved", "funs[7]'s cosine", "Which function marks")
def no_checkpoint(funs):
    return chain(funs)


@fails_with("also saved", "funs[3]'s cosine")
def only_one_cut(funs):
    middle = len(funs) // 2
    if len(funs) <= 2:
        return chain(funs)
    return lambda x: chain(funs[:middle])(jax.checkpoint(chain(funs[middle:]))(x))


@fails_with("also saved", "funs[2]'s output")
def down_to_single_functions(funs):
    return halves(funs, lambda f1, f2: lambda x: f1(jax.checkpoint(f2)(x)), leaf=1)


@fails_with("peak", "16.0 vectors", "at most 6", "saved for each of its functions")
def the_wrapped_half_is_not_cut(funs):
    if len(funs) <= 2:
        return chain(funs)
    middle = len(funs) // 2
    f1, f2 = the_wrapped_half_is_not_cut(funs[:middle]), chain(funs[middle:])
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("peak", "vectors", "at most 6")
def within_the_wrapped_half_f1_is_wrapped(funs):
    if len(funs) <= 2:
        return chain(funs)
    middle = len(funs) // 2
    f1, f2 = within_the_wrapped_half_f1_is_wrapped(funs[:middle]), wraps_f1(funs[middle:])
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("peak", "at most 6")
def without_a_barrier(funs):
    """CSE undoes it when it is compiled. (The next rematerialization leaves barriers within the outermost ones.)"""
    return halves(funs, lambda f1, f2: lambda x: f1(jax.checkpoint(f2, prevent_cse=False)(x)))


@fails_with("peak", "at most 6", "saved for each of its functions")
def with_one_barrier(funs):
    """The outermost; CSE undoes the others."""

    def join(f1, f2):
        return lambda x: f1(jax.checkpoint(f2, prevent_cse=False)(x))

    middle = len(funs) // 2
    if len(funs) <= 2:
        return chain(funs)
    f1, f2 = halves(funs[:middle], join), halves(funs[middle:], join)
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("also saved", "funs[3]'s cosine", "stops halving")
def down_to_four_functions(funs):
    return halves(funs, lambda f1, f2: lambda x: f1(jax.checkpoint(f2)(x)), leaf=4)


@fails_with("wrong value", "the first half of a list run before the second")
def f1_before_f2(funs):
    return halves(funs, lambda f1, f2: lambda x: jax.checkpoint(f2)(f1(x)))


@fails_with("also saved", "funs[7]'s output", "Which half")
def products_kept(funs):
    keep = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    return halves(funs, lambda f1, f2: lambda x: f1(keep(f2)(x)))


@fails_with("also saved", "funs[6]'s output", "Which half")
def segments_of_two(funs):
    """Exercise 14's answer."""
    segments = [jax.checkpoint(chain(funs[start : start + 2])) for start in range(0, len(funs), 2)]
    return chain(segments) if len(funs) > 2 else chain(funs)


@fails_with("wrong value", "with funs[0] run first", "runs first?")
def in_the_other_order(funs):
    return right(funs[::-1])


@fails_with("wrong value", "the first half of the list alone", "other half")
def second_half_not_called(funs):
    return chain(funs[: max(1, len(funs) // 2)])


@fails_with("wrong value", "the second half of the list alone", "other half")
def first_half_not_called(funs):
    return chain(funs[len(funs) // 2 :])


@fails_with("raises", "RecursionError", "recursion end")
def without_an_end(funs):
    f1, f2 = without_an_end(funs[: len(funs) // 2]), without_an_end(funs[len(funs) // 2 :])
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("raises", "a list of one function")
def no_case_for_one(funs):
    if len(funs) <= 2:
        f1, f2 = funs
        return lambda x: f1(f2(x))
    return right(funs)


@fails_with("raises", "positional argument", "which with x")
def takes_x_too(funs, x):
    return right(funs)(x)


@fails_with("wrong type", "returns None")
def no_return(funs):
    right(funs)


@fails_with("recomputes", "computes only", "in the same way as the whole")
def lists_of_four_inside_are_not_cut(funs, leaf=2):
    """Neither what crosses nor the peak shows it."""
    if len(funs) <= leaf:
        return chain(funs)
    middle = len(funs) // 2
    f1 = lists_of_four_inside_are_not_cut(funs[:middle], leaf)
    f2 = lists_of_four_inside_are_not_cut(funs[middle:], 4)
    return lambda x: f1(jax.checkpoint(f2)(x))


def run_twice(funs):
    """Right, and all of it a second time, recomputed."""
    return lambda x: (right(funs)(x) + jax.checkpoint(chain(funs))(x)) / 2


def wrapped(funs):
    return jax.checkpoint(chain(funs))


def unlike_the_others(other, *counts):
    """Right, but for lists of these lengths it is another answer."""
    return lambda funs: (other if len(funs) in counts else right)(funs)


for name, other, counts, kind, *words in (
    ("run_twice_for_8", run_twice, [8], "recomputes", "matmuls"),
    ("run_twice_for_32", run_twice, [32], "recomputes", "matmuls"),
    # Of a single function nothing has to be computed again: its product is just one too many.
    ("run_twice_for_1", run_twice, [1], "extra matmuls", "matmul"),
    ("all_kept_for_8", chain, [8], "also saved", "funs[7]'s cosine", "Which function marks"),
    ("all_kept_beyond_16", chain, [32, 64], "also saved", "funs[31]'s cosine", "Which function marks"),
    ("wrapped_for_1", wrapped, [1], "not saved", "funs[0]'s cosine", "funs[0] and funs[1]"),
    ("wrapped_for_2", wrapped, [2], "not saved", "funs[1]'s cosine", "funs[0] and funs[1]"),
):
    answer = unlike_the_others(other, *counts)
    answer.__name__ = name
    fails_with(kind, *words)(answer)


@fails_with("also saved", "f16[", "Which function marks")
def all_kept_in_float16(funs):
    return lambda x: (chain(funs) if x.dtype == jnp.float16 else right(funs))(x)


@fails_with("not saved", "funs[0]'s cosine", "funs[0] and funs[1]")
def early_of_two_wrapped(funs):
    """The recursion ends at one function, and what runs last is wrapped too."""
    if len(funs) == 1:
        return funs[0]
    middle = len(funs) // 2
    f1, f2 = early_of_two_wrapped(funs[:middle]), early_of_two_wrapped(funs[middle:])
    return lambda x: jax.checkpoint(lambda x: f1(f2(x)))(x)


@fails_with("raises", "Does it get one, or a list of them")
def checkpoint_of_a_list(funs):
    if len(funs) <= 2:
        return chain(funs)
    f1, f2 = jax.checkpoint(funs[: len(funs) // 2]), jax.checkpoint(funs[len(funs) // 2 :])
    return lambda x: f1(f2(x))


@fails_with("peak", "at most 4")
def barriers_for_32_alone(funs):
    return right(funs) if len(funs) == 32 else without_a_barrier(funs)


@fails_with("also saved", "f16[", "Which function marks")
def all_kept_of_three_axes(funs):
    return lambda x: (chain(funs) if x.ndim == 3 else right(funs))(x)


@fails_with("recomputes", "by which of your checkpoints", beyond="Recomputes.count")
def last_function_once_more(funs):
    return lambda x: right(funs)(also_run_backward(funs[-1], x, x) if len(funs) > 1 else x)


def one_list_of_four_is_not_cut(funs):
    if len(funs) == 4:
        return chain(funs)
    middle = len(funs) // 2
    f1, f2 = right(funs[:middle]), one_list_of_four_is_not_cut(funs[middle:])
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("recomputes", "recomputes only 4 matmuls", "in the same way as the whole", beyond="RecomputesNoLess.count")
def one_wrapped_list_of_four_is_not_cut(funs):
    return one_list_of_four_is_not_cut(funs) if len(funs) > 4 else right(funs)


def more_in_memory(funs, copies):
    """Right, but the backward pass also sorts so many copies of x for lists of these lengths."""

    def several(x):
        return jnp.sort(jnp.concatenate([x.ravel()] * copies[len(funs)]))

    return lambda x: right(funs)(also_run_backward(several, x, x) if len(funs) in copies else x)


@fails_with("peak", "at most 6", "saved for each of its functions", beyond="PeakAtMost.most")
def a_vector_or_two_more_in_memory(funs):
    return more_in_memory(funs, {8: 4, 16: 3, 32: 5})


@fails_with("peak", "at most 6", "saved for each of its functions")
def a_vector_more_for_32(funs):
    return more_in_memory(funs, {32: 5})


@fails_with("peak", "at most 4", "saved for each of its functions")
def a_vector_more_for_8(funs):
    return more_in_memory(funs, {8: 4})

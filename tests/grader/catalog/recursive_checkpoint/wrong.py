"""Wrong answers to recursive_checkpoint, each with the finding that must name its mistake."""

import functools

import jax
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
SIXTEEN, FOUR, ONE = ALL = ("16 functions", "4 functions under vmap", "1 function")


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


@fails_with("also saved", "funs[15]'s cosine", "need first", cases=(SIXTEEN,))
def wraps_f1(funs):
    return halves(funs, lambda f1, f2: lambda x: jax.checkpoint(f1)(f2(x)))


@fails_with("not saved", "funs[8]'s output", "funs[0] and funs[1]", cases=(SIXTEEN,))
def wraps_the_root(funs):
    return jax.checkpoint(right(funs))


@fails_with("not saved", "funs[4]'s output", "funs[0]'s cosine", cases=(SIXTEEN,))
def wraps_both(funs):
    return halves(funs, lambda f1, f2: lambda x: jax.checkpoint(f1)(jax.checkpoint(f2)(x)))


@fails_with("also saved", "funs[15]'s cosine", "Which function marks", cases=(SIXTEEN,))
def no_checkpoint(funs):
    return chain(funs)


@fails_with("also saved", "funs[7]'s cosine", cases=(SIXTEEN,))
def only_one_cut(funs):
    middle = len(funs) // 2
    if len(funs) <= 2:
        return chain(funs)
    return lambda x: chain(funs[:middle])(jax.checkpoint(chain(funs[middle:]))(x))


@fails_with("also saved", "funs[2]'s output", cases=(SIXTEEN,))
def down_to_single_functions(funs):
    return halves(funs, lambda f1, f2: lambda x: f1(jax.checkpoint(f2)(x)), leaf=1)


@fails_with("peak", "8.0 vectors", "5 at most", "kept of each of its functions", cases=(SIXTEEN,))
def the_wrapped_half_is_not_cut(funs):
    if len(funs) <= 2:
        return chain(funs)
    middle = len(funs) // 2
    f1, f2 = the_wrapped_half_is_not_cut(funs[:middle]), chain(funs[middle:])
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("peak", "7.0 vectors", "5 at most", cases=(SIXTEEN,))
def within_the_wrapped_half_f1_is_wrapped(funs):
    if len(funs) <= 2:
        return chain(funs)
    middle = len(funs) // 2
    f1, f2 = within_the_wrapped_half_f1_is_wrapped(funs[:middle]), wraps_f1(funs[middle:])
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("peak", "5 at most", cases=(SIXTEEN,))
def without_a_barrier(funs):
    """CSE undoes it when it is compiled. (The next rematerialization leaves barriers within the outermost ones.)"""
    return halves(funs, lambda f1, f2: lambda x: f1(jax.checkpoint(f2, prevent_cse=False)(x)))


@fails_with("peak", "5 at most", "kept of each of its functions", cases=(SIXTEEN,))
def with_one_barrier(funs):
    """The outermost; CSE undoes the others."""

    def join(f1, f2):
        return lambda x: f1(jax.checkpoint(f2, prevent_cse=False)(x))

    middle = len(funs) // 2
    if len(funs) <= 2:
        return chain(funs)
    f1, f2 = halves(funs[:middle], join), halves(funs[middle:], join)
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("also saved", "funs[3]'s cosine", "left when it stops to cut", cases=(SIXTEEN,))
def down_to_four_functions(funs):
    return halves(funs, lambda f1, f2: lambda x: f1(jax.checkpoint(f2)(x)), leaf=4)


@fails_with("wrong value", "the first half of a list run before the second", cases=(SIXTEEN, FOUR))
def f1_before_f2(funs):
    return halves(funs, lambda f1, f2: lambda x: jax.checkpoint(f2)(f1(x)))


@fails_with("also saved", "funs[15]'s output", "Which half", cases=(SIXTEEN,))
def products_kept(funs):
    keep = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    return halves(funs, lambda f1, f2: lambda x: f1(keep(f2)(x)))


@fails_with("also saved", "funs[12]'s output", "Which half", cases=(SIXTEEN,))
def segments_of_four(funs):
    """Exercise 14's answer."""
    segments = [jax.checkpoint(chain(funs[start : start + 4])) for start in range(0, len(funs), 4)]
    return chain(segments) if len(funs) > 2 else chain(funs)


@fails_with("wrong value", "with funs[0] run first", "runs first?", cases=(SIXTEEN, FOUR))
def in_the_other_order(funs):
    return right(funs[::-1])


@fails_with("wrong value", "the first half of the list alone", "other half", cases=(SIXTEEN, FOUR))
def second_half_not_called(funs):
    return chain(funs[: max(1, len(funs) // 2)])


@fails_with("wrong value", "the second half of the list alone", "other half", cases=(SIXTEEN, FOUR))
def first_half_not_called(funs):
    return chain(funs[len(funs) // 2 :])


@fails_with("raises", "RecursionError", "recursion end", cases=ALL)
def without_an_end(funs):
    f1, f2 = without_an_end(funs[: len(funs) // 2]), without_an_end(funs[len(funs) // 2 :])
    return lambda x: f1(jax.checkpoint(f2)(x))


@fails_with("raises", "a list of one function", cases=(ONE,))
def no_case_for_one(funs):
    if len(funs) <= 2:
        f1, f2 = funs
        return lambda x: f1(f2(x))
    return right(funs)


@fails_with("raises", "positional argument", "what with x", cases=ALL)
def takes_x_too(funs, x):
    return right(funs)(x)


@fails_with("wrong type", "returns None", cases=ALL)
def no_return(funs):
    right(funs)


def unlike_the_others(count, answer):
    """Right, but for lists of this length."""
    return lambda funs: (answer if len(funs) == count else right)(funs)


def run_twice(funs):
    """Right, and all of it a second time, recomputed."""
    return lambda x: (right(funs)(x) + jax.checkpoint(chain(funs))(x)) / 2


for length, case in ((16, SIXTEEN), (4, FOUR), (1, ONE)):
    twice = unlike_the_others(length, run_twice)
    twice.__name__ = f"run_twice_for_{length}"
    # Of a single function nothing has to be computed again: its product is just one too many.
    fails_with("recomputes" if length > 1 else "extra matmuls", "matmul", cases=(case,))(twice)
    if length > 2:
        kept = unlike_the_others(length, chain)
        kept.__name__ = f"all_kept_for_{length}"
        fails_with("also saved", f"funs[{length - 1}]'s cosine", cases=(case,))(kept)
    else:
        dropped = unlike_the_others(length, lambda funs: jax.checkpoint(chain(funs)))
        dropped.__name__ = f"all_wrapped_for_{length}"
        fails_with("not saved", "funs[0]'s cosine", cases=(case,))(dropped)

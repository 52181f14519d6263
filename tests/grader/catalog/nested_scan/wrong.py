"""Wrong answers to nested_scan, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
SIX, EIGHT = ALL = ("6 elements in 3 groups", "8 elements in 2 groups under vmap over c")


def scanned(f, c, xs, **options):
    return jax.lax.scan(lambda c, x: (f(c, x), None), c, xs, **options)[0]


def grouped(xs, outer):
    return xs.reshape(outer, -1, *xs.shape[1:])


def group_of(f):
    return functools.partial(scanned, f)


def right(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, grouped(xs, outer))


@fails_with("also saved", "every carry, f32[6,", "how many turns", cases=ALL)
def one_loop(f, c, xs, outer):
    return scanned(jax.checkpoint(f), c, xs)


@fails_with("also saved", "every cosine, f32[6,", "how many turns", cases=ALL)
def one_loop_without_checkpoint(f, c, xs, outer):
    return scanned(f, c, xs)


@fails_with("also saved", "every cosine, group by group, f32[3,2,", "Which body", cases=ALL)
def no_checkpoint(f, c, xs, outer):
    return scanned(group_of(f), c, grouped(xs, outer))


@fails_with("also saved", "every carry, group by group, f32[3,2,", "Which body", cases=ALL)
def checkpoint_around_the_step(f, c, xs, outer):
    return scanned(group_of(jax.checkpoint(f)), c, grouped(xs, outer))


@fails_with("not saved", "each group's first carry, f32[3,", "one group, or all?", cases=ALL)
def checkpoint_around_all(f, c, xs, outer):
    return jax.checkpoint(functools.partial(scanned, group_of(f)))(c, grouped(xs, outer))


@fails_with("not saved", "each group's first carry", "one group, or all?", cases=ALL)
def one_around_all_besides(f, c, xs, outer):
    return jax.checkpoint(functools.partial(right, f), static_argnums=2)(c, xs, outer)


@fails_with("also saved", "every 3rd carry, f32[2,", "how many turns", cases=ALL)
def rows_and_columns_mixed_up(f, c, xs, outer):
    return right(f, c, xs, len(xs) // outer)


@fails_with("also saved", "group 2's first carry", "group 3's first carry", cases=ALL)
def python_loop_over_groups(f, c, xs, outer):
    for group in grouped(xs, outer):
        c = jax.checkpoint(group_of(f))(c, group)
    return c


@fails_with("also saved", "group 2's first carry", cases=ALL)
def groups_written_out(f, c, xs, outer):
    inner = len(xs) // outer
    for number in range(outer):
        part = jax.checkpoint(lambda c, xs, start=number * inner: scanned(f, c, xs[start : start + inner]))
        c = part(c, xs)
    return c


@fails_with("also saved", "a copy of xs, group by group, f32[3,2,", "Which body", cases=ALL)
def groups_stacked_anew(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, jnp.stack(jnp.split(xs, outer)))


@fails_with("also saved", "every product, group by group, f32[3,2,", "Which body", cases=ALL)
def products_kept(f, c, xs, outer):
    keep = jax.checkpoint(group_of(f), policy=jax.checkpoint_policies.dots_saveable)
    return scanned(keep, c, grouped(xs, outer))


@fails_with("also saved", "all of xs, once for each group, f32[3,3,2,", "Which body", cases=ALL)
def elements_in_the_carry(f, c, xs, outer):
    def group(carry, number):
        c, groups = carry
        return (scanned(f, c, groups[number]), groups), None

    return jax.lax.scan(jax.checkpoint(group), (c, grouped(xs, outer)), jnp.arange(outer))[0][0]


@fails_with("also saved", "a copy of xs, group by group", "Which body", cases=ALL)
def elements_taken_outside(f, c, xs, outer):
    inner, group = len(xs) // outer, jax.checkpoint(group_of(f))
    return jax.lax.fori_loop(
        0, outer, lambda number, c: group(c, jax.lax.dynamic_slice_in_dim(xs, number * inner, inner)), c
    )


@fails_with("also saved", "every cosine, group by group", cases=ALL)
def everything_saveable(f, c, xs, outer):
    keep = jax.checkpoint(group_of(f), policy=jax.checkpoint_policies.everything_saveable)
    return scanned(keep, c, grouped(xs, outer))


def both_for(count):
    """Right, but for this number of elements there is a checkpoint around the steps too."""
    return lambda f, c, xs, outer: right(jax.checkpoint(f) if len(xs) == count else f, c, xs, outer)


for count, case in ((6, SIX), (8, EIGHT)):
    both = both_for(count)
    both.__name__ = f"both_checkpoints_for_{count}"
    again = f"{2 * count} matmuls again"
    fails_with("recomputes", again, "a checkpoint inside a checkpoint", cases=(case,))(both)


@fails_with("wrong value", "groups of every outer-th element", "in the first row", cases=ALL)
def transposed(f, c, xs, outer):
    groups = jnp.swapaxes(xs.reshape(-1, outer, *xs.shape[1:]), 0, 1)
    return scanned(jax.checkpoint(group_of(f)), c, groups)


@fails_with("wrong value", "the last element taken first", "From which end", cases=ALL)
def from_the_last(f, c, xs, outer):
    return right(f, c, xs[::-1], outer)


@fails_with("wrong value", "the last group alone", "With which carry does a group begin", cases=ALL)
def each_group_from_c(f, c, xs, outer):
    group = jax.checkpoint(group_of(f))
    return scanned(lambda _, elements: group(c, elements), c, grouped(xs, outer))


@fails_with("wrong value", "this is c itself", "goes into the next turn", cases=ALL)
def carry_left_alone(f, c, xs, outer):
    return jax.lax.scan(lambda c, elements: (c, group_of(f)(c, elements)), c, grouped(xs, outer))[0]


@fails_with("wrong type", "(*, None)", "What should nested_scan", cases=ALL)
def both_results_of_scan(f, c, xs, outer):
    group = jax.checkpoint(lambda c, elements: jax.lax.scan(lambda c, x: (f(c, x), None), c, elements))
    return jax.lax.scan(group, c, grouped(xs, outer))


@fails_with("wrong type", "returns a function", "Who calls it")
def a_function(f, c, xs, outer):
    return lambda: right(f, c, xs, outer)


@fails_with("raises", "know how often they will turn", cases=ALL)
def from_here_to_there(f, c, xs, outer):
    inner = len(xs) // outer

    @jax.checkpoint
    def group(number, c):
        first = number * inner
        return jax.lax.fori_loop(first, first + inner, lambda i, c: f(c, xs[i]), c)

    return jax.lax.fori_loop(0, outer, group, c)


@fails_with("raises", "must be a pair", "What do the bodies", cases=ALL)
def f_as_the_body(f, c, xs, outer):
    group = jax.checkpoint(lambda c, elements: jax.lax.scan(f, c, elements))
    return jax.lax.scan(group, c, grouped(xs, outer))[0]


@fails_with("raises", "Which of Python's divisions", cases=ALL)
def a_float_of_elements(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, xs.reshape(outer, len(xs) / outer, *xs.shape[1:]))


@fails_with("raises", "what of its other dimensions", cases=(SIX,))
def other_dimensions_forgotten(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, xs.reshape(outer, len(xs) // outer))

"""Wrong answers to nested_scan, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def scanned(f, c, xs, **options):
    return jax.lax.scan(lambda c, x: (f(c, x), None), c, xs, **options)[0]


def grouped(xs, outer):
    return xs.reshape(outer, -1, *xs.shape[1:])


def group_of(f):
    return functools.partial(scanned, f)


def right(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, grouped(xs, outer))


@fails_with("also saved", "every carry, f32[6,", "How many iterations", hint="forward_pass_saves_one_carry")
def one_loop(f, c, xs, outer):
    return scanned(jax.checkpoint(f), c, xs)


@fails_with(
    "also saved",
    "every cosine, group by group, f32[3,2,",
    "Which function does `jax.checkpoint` wrap",
    hint="forward_pass_saves_cosine_step",
)
def no_checkpoint(f, c, xs, outer):
    return scanned(group_of(f), c, grouped(xs, outer))


@fails_with(
    "not saved",
    "each group's first carry, f32[3,",
    "run: one group, or the loop",
    hint="forward_pass_should_save_carry",
)
def checkpoint_around_all(f, c, xs, outer):
    return jax.checkpoint(functools.partial(scanned, group_of(f)))(c, grouped(xs, outer))


@fails_with(
    "also saved",
    "every 3rd carry, as if outer were the group size, f32[2,",
    "How many iterations",
    hint="many_iterations_outer_scan_take",
)
def rows_and_columns_mixed_up(f, c, xs, outer):
    return right(f, c, xs, len(xs) // outer)


@fails_with("also saved", "group 2's first carry", "group 3's first carry", hint="forward_pass_saves_separate_array")
def python_loop_over_groups(f, c, xs, outer):
    for group in grouped(xs, outer):
        c = jax.checkpoint(group_of(f))(c, group)
    return c


@fails_with("also saved", "group 2's first carry", hint="forward_pass_saves_separate_array")
def groups_written_out(f, c, xs, outer):
    inner = len(xs) // outer
    for number in range(outer):
        part = jax.checkpoint(lambda c, xs, start=number * inner: scanned(f, c, xs[start : start + inner]))
        c = part(c, xs)
    return c


@fails_with(
    "also saved",
    "a copy of xs, group by group, f32[3,2,",
    "Which function does `jax.checkpoint` wrap",
    hint="copy_elements_xs_groups_example",
)
def groups_stacked_anew(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, jnp.stack(jnp.split(xs, outer)))


@fails_with(
    "also saved",
    "all of xs, once for each group, f32[3,3,2,",
    "Which function does `jax.checkpoint` wrap",
    hint="xs_part_carry_outer_scan",
)
def elements_in_the_carry(f, c, xs, outer):
    def group(carry, number):
        c, groups = carry
        return (scanned(f, c, groups[number]), groups), None

    return jax.lax.scan(jax.checkpoint(group), (c, grouped(xs, outer)), jnp.arange(outer))[0][0]


@fails_with(
    "recomputes",
    "recomputes 18 matmuls",
    "How many nested checkpoints",
    hint="count_often_backward_pass_runs",
)
def three_for_6(f, c, xs, outer):
    """Right, except that six steps run in three checkpoints inside each other: of a group, a part of it and a step."""
    if len(xs) != 6:
        return right(f, c, xs, outer)
    part = jax.checkpoint(group_of(jax.checkpoint(f)))
    group = jax.checkpoint(lambda c, elements: scanned(part, c, grouped(elements, 1)))
    return scanned(group, c, grouped(xs, outer))


@fails_with("also saved", "f32[", hint="forward_pass_saves_cosine_step")
def free_for_one_element(f, c, xs, outer):
    return f(c, xs[0]) if len(xs) == 1 else right(f, c, xs, outer)


@fails_with("raises", "are the types and shapes", hint="scan_body_takes_carry_element")
def elements_taken_for_vectors(f, c, xs, outer):
    groups = xs.reshape(outer, -1, *([xs.size // len(xs)] if xs.ndim > 1 else []))
    return scanned(jax.checkpoint(group_of(f)), c, groups)


def transposed(f, c, xs, outer):
    groups = jnp.swapaxes(xs.reshape(-1, outer, *xs.shape[1:]), 0, 1)
    return scanned(jax.checkpoint(group_of(f)), c, groups)


@fails_with("wrong value", "in reverse order", "In what direction", hint="reshape_numbers_0_11_3")
def from_the_last(f, c, xs, outer):
    return right(f, c, xs[::-1], outer)


@fails_with(
    "wrong value",
    "only the last group is processed",
    "Which carry does each group start with",
    hint="reshape_numbers_0_11_3",
)
def each_group_from_c(f, c, xs, outer):
    group = jax.checkpoint(group_of(f))
    return scanned(lambda _, elements: group(c, elements), c, grouped(xs, outer))


@fails_with("wrong value", "it returns `c` unchanged", "the next iteration's carry", hint="reshape_numbers_0_11_3")
def carry_left_alone(f, c, xs, outer):
    return jax.lax.scan(lambda c, elements: (c, group_of(f)(c, elements)), c, grouped(xs, outer))[0]


@fails_with("wrong type", "(*, None)", "What should nested_scan", hint="scan_body_takes_carry_element")
def both_results_of_scan(f, c, xs, outer):
    group = jax.checkpoint(lambda c, elements: jax.lax.scan(lambda c, x: (f(c, x), None), c, elements))
    return jax.lax.scan(group, c, grouped(xs, outer))


@fails_with("wrong type", "returns a function", "Where do you call that function", hint="scan_body_takes_carry_element")
def a_function(f, c, xs, outer):
    return lambda: right(f, c, xs, outer)


@fails_with("raises", "Does JAX know the number of iterations", hint="scan_body_takes_carry_element")
def from_here_to_there(f, c, xs, outer):
    inner = len(xs) // outer

    @jax.checkpoint
    def group(number, c):
        first = number * inner
        return jax.lax.fori_loop(first, first + inner, lambda i, c: f(c, xs[i]), c)

    return jax.lax.fori_loop(0, outer, group, c)


@fails_with("raises", "must be a pair", "What does the body of each scan return", hint="scan_body_takes_carry_element")
def f_as_the_body(f, c, xs, outer):
    group = jax.checkpoint(lambda c, elements: jax.lax.scan(f, c, elements))
    return jax.lax.scan(group, c, grouped(xs, outer))[0]


@fails_with("raises", "needs an integer", hint="6_2_7_2_7")
def a_float_of_elements(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, xs.reshape(outer, len(xs) / outer, *xs.shape[1:]))


@fails_with("raises", "the other dimensions of `xs`", hint="scan_body_takes_carry_element")
def other_dimensions_forgotten(f, c, xs, outer):
    return scanned(jax.checkpoint(group_of(f)), c, xs.reshape(outer, len(xs) // outer))


@fails_with("wrong value", "every outer-th element", "in the first row", hint="reshape_numbers_0_11_3")
def transposed_for_odd_numbers(f, c, xs, outer):
    return (transposed if len(xs) % 2 else right)(f, c, xs, outer)


@fails_with("also saved", "in a wider dtype", "f32[", hint="forward_pass_should_save_carry")
def carries_in_float32(f, c, xs, outer):
    def step(c, x):
        return f(c.astype(x.dtype), x).astype(jnp.float32)

    return right(step, c.astype(jnp.float32), xs, outer).astype(c.dtype)


@fails_with(
    "recomputes",
    "How many nested checkpoints contain the step",
    hint="count_often_backward_pass_runs",
    beyond="Recomputes.count",
)
def steps_twice_and_the_first_once_more(f, c, xs, outer):
    c = also_run_backward(lambda c, xs: f(c, xs[0]), c, c, xs)
    return scanned(jax.checkpoint(group_of(jax.checkpoint(f))), c, grouped(xs, outer))

"""Right answers to nested_scan, spelled in many ways."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def scanned(f, c, xs):
    return jax.lax.scan(lambda c, x: (f(c, x), None), c, xs)[0]


@passes
def scan_of_a_checkpoint(f, c, xs, outer):
    inner = xs.shape[0] // outer
    group = jax.checkpoint(functools.partial(scanned, f))
    return scanned(group, c, jnp.reshape(xs, (outer, inner, *xs.shape[1:])))


@passes
def groups_split_and_stacked_with_results(f, c, xs, outer):
    @functools.partial(jax.remat, prevent_cse=False)
    def group(c, elements):
        last, carries = jax.lax.scan(lambda c, x: (f(c, x),) * 2, c, elements)
        return last, carries.sum()

    return jax.jit(lambda c, xs: jax.lax.scan(group, c, xs.reshape(outer, len(xs) // outer, *xs.shape[1:])))(c, xs)[0]


@passes
def groups_by_number(f, c, xs, outer):
    inner = len(xs) // outer

    @jax.checkpoint
    def group(i, c):
        return scanned(f, c, jax.lax.dynamic_slice_in_dim(xs, i * inner, inner))

    return jax.lax.fori_loop(0, outer, group, c)


@passes
def steps_written_out(f, c, xs, outer):
    @jax.checkpoint
    def group(c, elements):
        for x in elements:
            c = f(c, x)
        return c

    return scanned(group, c, xs.reshape(outer, len(xs) // outer, *xs.shape[1:]))


@passes
def first_carries_named(f, c, xs, outer):
    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("first"))
    def run(c, groups):
        return scanned(lambda c, group: scanned(f, checkpoint_name(c, "first"), group), c, groups)

    return run(c, xs.reshape(outer, -1, *xs.shape[1:]))


@passes
def a_checkpoint_around_the_step_too(f, c, xs, outer):
    group = jax.checkpoint(functools.partial(scanned, jax.checkpoint(f)))
    return scanned(group, c, xs.reshape(outer, -1, *xs.shape[1:]))


@passes
def both_without_barriers(f, c, xs, outer):
    wrap = functools.partial(jax.checkpoint, prevent_cse=False)

    @wrap
    def group(c, elements):
        return jax.lax.scan(wrap(lambda c, x: (f(c, x), None)), c, elements)

    return jax.lax.scan(group, c, xs.reshape(outer, len(xs) // outer, *xs.shape[1:]))[0]


@passes
def linen_modules(f, c, xs, outer):
    class Group(nn.Module):
        def __call__(self, c, elements):
            return scanned(f, c, elements), None

    groups = nn.scan(nn.remat(Group, prevent_cse=False), variable_broadcast=False, split_rngs={})
    return groups().apply({}, c, xs.reshape(outer, len(xs) // outer, *xs.shape[1:]))[0]


@passes
def carries_as_columns(f, c, xs, outer):
    @jax.checkpoint
    def group(column, elements):
        return scanned(f, column[..., 0], elements)[..., None], None

    groups = xs.reshape(outer, len(xs) // outer, *xs.shape[1:])
    return jax.lax.scan(group, c[..., None], groups)[0][..., 0]


@passes
def carry_with_an_axis_more(f, c, xs, outer):
    """With one element in one group, the stack of carries is `c` with two axes of size 1 more."""

    @jax.checkpoint
    def group(c, elements):
        return jax.lax.scan(lambda c, x: (f(c[0], x)[None], None), c, elements)

    return jax.lax.scan(group, c[None], xs.reshape(outer, -1, *xs.shape[1:]))[0][0]

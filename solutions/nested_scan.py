"""Worked answer to exercise 16: two loops, and the checkpoint around the inner one.

With a checkpoint around its body, a scan keeps one carry a turn. So less is kept if there are fewer turns, each of
which does more. `xs` is cut into `outer` groups of `inner` elements each. The outer scan has one turn a group, and its
body is an inner scan over the group's elements, all of it in one checkpoint. What is kept of a group is the carry that
it begins with. (Its elements are part of `xs`, which is an argument: a reshape copies nothing.)

The backward pass takes one group after the other, from the last to the first. It runs the inner scan again from the
group's first carry, and this time keeps what each step needs: `inner` values, until the group is done. So each step is
run once more. In memory are `outer` carries and what `inner` steps keep, and where a step keeps one value as large as a
carry the sum is smallest where both are equal: the segments of exercise 14 again, made by loops.

A step that keeps much more than its carry, as a layer does, gets a checkpoint of its own: `jax.checkpoint(f)` in place
of `f`. Then `inner` carries are in memory while a group is run again, and the insides of one step; each step is run
twice more.
"""

import functools

import jax


def nested_scan(f, c, xs, outer):
    """The last carry of `c = f(c, x)` over the elements of `xs`, of which one carry a group is kept.

    Args:
      f: takes a carry and an element, returns the next carry.
      c: the first carry, an array.
      xs: the elements, shape (n, …).
      outer: the number of groups, a divisor of n.

    Returns:
      The last carry, of the shape of `c`.
    """

    def step(c, x):
        return f(c, x), None

    @functools.partial(jax.checkpoint, prevent_cse=False)  # in a scan, where it is safe
    def group(c, xs):
        return jax.lax.scan(step, c, xs)

    groups = xs.reshape(outer, -1, *xs.shape[1:])
    return jax.lax.scan(group, c, groups)[0]

"""Worked answer to exercise 14: two nested scans, with the checkpoint around the inner one.

A scan with a checkpoint around its body saves one carry per iteration. Fewer iterations that each do more work save
fewer carries. `xs` is divided into `outer` groups of `inner` elements. The outer scan runs one iteration per group. Its
body is an inner scan over the group's elements, inside a checkpoint. It saves the first carry of each group. (The
group's elements are a part of `xs`, an argument, and a reshape copies nothing.)

The backward pass visits the groups from the last to the first. It runs the inner scan again from the group's first
carry and saves what each step needs, `inner` values, until the group is done. So each step runs once more. The memory
holds `outer` carries and the residuals of `inner` steps. If a step saves one value of the size of a carry, the sum is
smallest when both numbers are equal.

A step that saves much more than its carry, such as a layer, should get a checkpoint of its own: `jax.checkpoint(f)`
instead of `f`. Then the memory holds `inner` carries and the residuals of one step while a group is recomputed, and
each step runs two more times.
"""

import functools

import jax


def nested_scan(f, c, xs, outer):
    """Return the last carry of `c = f(c, x)` over the elements of `xs`, saving one carry per group.

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

    @functools.partial(jax.checkpoint, prevent_cse=False)  # safe: alone in the body of a scan with unroll=1
    def group(c, xs):
        return jax.lax.scan(step, c, xs)

    groups = xs.reshape(outer, -1, *xs.shape[1:])
    return jax.lax.scan(group, c, groups)[0]

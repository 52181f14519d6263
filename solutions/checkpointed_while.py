"""Worked answer to exercise 18: a while loop as a scan of scans.

How many steps the loop takes is known only when it runs, but not more than `max_steps`. So it becomes a chain of that
length. A step runs `body` as long as `cond` is true, and hands on the state when it no longer is. A chain can be cut
into `c` segments, as in exercise 16: each is a scan in a checkpoint, and keeps the state that it begins with. If `c`
does not divide `max_steps`, they have a few steps too many. So the number of steps taken goes round with the state, and
after `max_steps` of them the rest hand on as well.

Why `jax.lax.cond`, where `jnp.where` would give the same value? `jnp.where` takes both sides, so `body` runs beyond the
end as well, and what it makes of a state that it was never meant for is only thrown away. The backward pass multiplies
its derivative by zero. That is zero as long as the derivative is a number, and NaN if it is infinite or NaN. A branch
that is not taken has no derivative.

In memory are `c` states, and `max_steps / c` more while a segment is run again. All that `cond` and `body` bring along
comes in by itself: `jax.checkpoint` and `jax.lax.scan` see which arrays a function uses, and gradients reach these too.

What is left to wish for: the scan takes all of its turns, though most may do nothing but hand on. A loop that stops
needs a backward pass written by hand, with `jax.custom_vjp`, and a plan that does without knowing the number of steps
beforehand. `equinox.internal.while_loop` with `kind="checkpointed"` is such a loop.
"""

import functools

import jax


def checkpointed_while(cond, body, x, max_steps, c):
    """The state after `while cond(x): x = body(x)`, which ends after `max_steps` steps at the latest.

    Args:
      cond: takes a state, returns a boolean.
      body: takes a state, returns the next one.
      x: the first state, an array; the others have its shape and dtype.
      max_steps: the number of steps after which the loop ends, whatever `cond` says.
      c: how many states may be kept for the backward pass, from 1 to `max_steps`.

    Returns:
      The last state, of the shape of `x`.
    """

    def step(carry, _):
        x, taken = carry
        going_on = (taken < max_steps) & cond(x)
        return jax.lax.cond(going_on, lambda: (body(x), taken + 1), lambda: (x, taken)), None

    @functools.partial(jax.checkpoint, prevent_cse=False)  # in a scan, where it is safe
    def segment(carry, _):
        return jax.lax.scan(step, carry, length=-(-max_steps // c))

    return jax.lax.scan(segment, (x, 0), length=c)[0][0]

"""Worked answer to exercise 16: a while loop as a scan over checkpointed scans.

The number of steps is unknown when the loop is traced, but it is at most `max_steps`. So the loop becomes a chain of
that length. Each step runs `body` if `cond` returns True, and otherwise returns the state unchanged. As in exercise 14,
the chain is split into `c` segments. Each segment is a scan in a checkpoint and saves its first state. If `c` does not
divide `max_steps`, the segments have a few steps too many. Therefore the carry also contains the number of steps taken,
and after `max_steps` steps the state no longer changes.

Why `jax.lax.cond` and not `jnp.where`, which gives the same value? `jnp.where` evaluates both sides, so `body` also
runs on states after the end of the loop, for which it may not be defined. Its derivative is multiplied by zero. The
result is zero if the derivative is finite, and NaN if it is infinite or NaN. `jax.lax.cond` differentiates only the
branch that it takes.

The memory holds `c` states, and about `max_steps / c` more while a segment is recomputed. Arrays that `cond` and `body`
close over need no special treatment: `jax.checkpoint` and `jax.lax.scan` detect them, and gradients reach them.

One limit remains: the scan always runs `max_steps` iterations, even if the loop ends early. A loop that stops early
needs a backward pass of its own, with `jax.custom_vjp`, and a checkpoint schedule that does not need the number of
steps in advance. `equinox.internal.while_loop` with `kind="checkpointed"` is such a loop.
"""

import functools

import jax


def checkpointed_while(cond, body, x, max_steps, c):
    """Return the state after `while cond(x): x = body(x)`, which stops after at most `max_steps` steps.

    Args:
      cond: takes a state and returns a boolean.
      body: takes a state and returns the next one.
      x: the first state, an array; all states have its shape and dtype.
      max_steps: the number of steps after which the loop stops, whatever `cond` returns.
      c: the number of states that may be saved for the backward pass, from 1 to `max_steps`.

    Returns:
      The last state, of the shape of `x`.
    """

    def step(carry, _):
        x, taken = carry
        continues = (taken < max_steps) & cond(x)
        return jax.lax.cond(continues, lambda: (body(x), taken + 1), lambda: (x, taken)), None

    @functools.partial(jax.checkpoint, prevent_cse=False)  # safe: alone in the body of a scan with unroll=1
    def segment(carry, _):
        return jax.lax.scan(step, carry, length=-(-max_steps // c))

    return jax.lax.scan(segment, (x, 0), length=c)[0][0]

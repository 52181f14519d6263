"""Right answers to checkpointed_while, spelled in many ways."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import while_loop
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def steps_counted_in_the_carry(cond, body, x, max_steps, c):
    def step(carry, _):
        x, taken = carry
        going_on = jnp.logical_and(taken < max_steps, cond(x))
        return jax.lax.cond(going_on, lambda x, n: (body(x), n + 1), lambda x, n: (x, n), x, taken), None

    @jax.checkpoint
    def segment(carry):
        return jax.lax.scan(step, carry, length=(max_steps + c - 1) // c)[0]

    return jax.jit(lambda x: jax.lax.fori_loop(0, c, lambda _, carry: segment(carry), (x, 0)))(x)[0]


@passes
def halves_of_halves(cond, body, x, max_steps, c):
    """Nested scans of two iterations each. They recompute more steps than segments and save fewer states."""

    def run(carry, depth):
        if depth == 0:
            x, number = carry
            return jax.lax.cond((number < max_steps) & cond(x), body, lambda x: x, x), number + 1
        half = jax.checkpoint(lambda carry, _: (run(carry, depth - 1), None))
        return jax.lax.scan(half, carry, length=2)[0]

    return run((x, 0), (max_steps - 1).bit_length())[0]


@passes
def equinox(cond, body, x, max_steps, c):
    return while_loop(cond, body, x, max_steps=max_steps, kind="checkpointed", checkpoints=c)


@passes
def a_rule_that_keeps_x_and_the_number_of_steps(cond, body, x, max_steps, c):
    """The backward pass saves states in `c` slots by the optimal schedule."""
    body, brought_along = jax.closure_convert(body, x)
    cond, known = jax.closure_convert(cond, x)
    cuts = best_cuts(max_steps, c)

    @jax.custom_vjp
    def run(x, brought_along, known):
        return forward(x, brought_along, known)[0]

    def forward(x, brought_along, known):
        last, taken = jax.lax.while_loop(
            lambda now: (now[1] < max_steps) & cond(now[0], *known),
            lambda now: (body(now[0], *brought_along), now[1] + 1),
            (x, 0),
        )
        return last, (x, taken, brought_along, known)

    def backward(kept, cotangent):
        x, taken, brought_along, known = kept

        def back(left, top, slots, places, gradients):
            cotangent, *others = jax.vjp(body, slots[top], *brought_along)[1](gradients[0])
            return left - 1, top - 1, slots, places, [cotangent, *map(jnp.add, gradients[1:], others)]

        def save(left, top, slots, places, gradients):
            steps = jnp.asarray(cuts)[left - places[top], c - top]
            state = jax.lax.fori_loop(0, steps, lambda _, x: body(x, *brought_along), slots[top])
            top, place = top + 1, places[top] + steps
            return left, top, slots.at[top].set(state), places.at[top].set(place), gradients

        def turn(now):
            left, top, _, places, _ = now
            return jax.lax.cond(left - places[top] == 1, back, save, *now)

        slots = jnp.zeros((c + 1, *x.shape), x.dtype).at[0].set(x)
        gradients = [cotangent, *map(jnp.zeros_like, brought_along)]
        start = taken, 0, slots, jnp.zeros(c + 1, int), gradients
        cotangent, *others = jax.lax.while_loop(lambda now: now[0] > 0, turn, start)[-1]
        return cotangent, others, [jnp.zeros_like(value) for value in known]

    run.defvjp(forward, backward)
    return run(x, brought_along, known)


@functools.cache
def best_cuts(n, slots):
    """Return the step after which to save a state, for some steps and slots; the last slot has the current state."""
    cost, cut = np.zeros((n + 1, slots + 1)), np.ones((n + 1, slots + 1), int)
    cost[2:, 0] = np.inf
    for steps in range(2, n + 1):
        for free in range(1, slots + 1):
            ways = [m + cost[m, free] + cost[steps - m, free - 1] for m in range(1, steps)]
            cost[steps, free], cut[steps, free] = min(ways), 1 + int(np.argmin(ways))
    return cut


@passes
def equinox_modules(cond, body, x, max_steps, c):
    class Loop(eqx.Module):
        x: jax.Array
        left: jax.Array

        def step(self, _):
            going_on = (self.left > 0) & cond(self.x)
            return jax.lax.cond(going_on, lambda loop: Loop(body(loop.x), loop.left - 1), lambda loop: loop, self), None

    @eqx.filter_checkpoint
    def segment(loop, _):
        return jax.lax.scan(Loop.step, loop, length=-(-max_steps // c))

    return jax.lax.scan(segment, Loop(x, jnp.asarray(max_steps)), length=c)[0].x


@passes
def done_once_and_for_all(cond, body, x, max_steps, c):
    def step(carry, number):
        x, done = carry
        done = done | ~cond(x) | (number >= max_steps)
        return (jax.lax.cond(done, lambda x: x, body, x), done), None

    length = -(-max_steps // c)
    segment = jax.remat(lambda carry, numbers: jax.lax.scan(step, carry, numbers), prevent_cse=False)
    return jax.lax.scan(segment, (x, jnp.asarray(False)), jnp.arange(c * length).reshape(c, length))[0][0]

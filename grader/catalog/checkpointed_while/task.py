"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.spec import Case

parameters = ("cond", "body", "x", "max_steps", "c")
ranges: dict = {}
signature = "checkpointed_while(cond, body, x, max_steps, c)"
max_trip_count = 20_000


def cases(rng):
    """A loop that goes to its bound, and one that ends before and has no gradient beyond its end."""
    return (
        # Large enough that a buffer's alignment is nothing beside it.
        _waves("60 steps at most with 7 checkpoints", 60, 7, rng, rows=int(rng.integers(24, 40)), width=8),
        _tanks("17 steps at most with 3 checkpoints", 17, 3, width=int(rng.integers(16, 20))),
    )


def _loop(cond, body, x, max_steps, of_each):
    """The last state, and something of the state that each step begins with."""

    def step(x, _):
        return jax.lax.cond(cond(x), body, lambda x: x, x), of_each(x)

    return jax.lax.scan(step, x, length=max_steps)


def _waves(name, max_steps, c, rng, rows, width):
    """Sines of products make numbers smaller and smaller. It takes some hundred steps until they are small."""
    w = np.linalg.qr(rng.normal(size=(width, width)))[0].astype(np.float32)

    def cond(x):
        return jnp.mean(x * x) > 0.01

    def body(x):
        return jnp.sin(x @ w)

    def function(x, *, name=lambda value, called: value):
        result, (states, cosines) = _loop(cond, body, x, max_steps, lambda x: (x, jnp.cos(x @ w)))
        name(states, "every state")
        name(cosines, "every step's cosine")
        name(states[:: -(-max_steps // c)], "each segment's first state")
        return name(result, "the result")

    return Case(
        name,
        (jax.ShapeDtypeStruct((rows, width), jnp.float32),),
        apply=lambda answer: lambda x: answer(cond, body, x, max_steps, c),
        function=function,
    )


def _tanks(name, max_steps, c, width):
    """Tanks run out until the first is empty, through holes whose sizes are no part of the state.

    At an empty tank the square root has no gradient. Whoever takes a step too many, and throws its result away, sees
    that in the gradient and not in the value.
    """

    def cond(levels):
        return jnp.all(levels > 0)

    def body_of(holes):
        def body(levels):
            left = levels - 0.1 * holes * jnp.sqrt(levels)
            return left * (left > 0.1)

        return body

    def function(levels, holes, *, name=lambda value, called: value):
        result, states = _loop(cond, body_of(holes), levels, max_steps, lambda levels: levels)
        name(states, "every state")
        name(states[:: -(-max_steps // c)], "each segment's first state")
        return name(result, "the result")

    return Case(
        name,
        (jax.ShapeDtypeStruct((width,), jnp.float32),) * 2,
        apply=lambda answer: lambda levels, holes: answer(cond, body_of(holes), levels, max_steps, c),
        function=function,
    )


shown = _waves("for 64 steps in 8 segments", 64, 8, np.random.default_rng(0), rows=256, width=64)

"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import calls
from grader.exercises.spec import Case, Integers, OneOf

parameters = ("cond", "body", "x", "max_steps", "c")
ranges = {
    "t": Integers(0, "max_steps"),
    "dtype": OneOf(("float32", "float16")),
    "max_steps": Integers(2, 58),
    "c": Integers(1, "max_steps"),
    "called": OneOf(("as it is", "under jax.jit")),
}
signature = "checkpointed_while(cond, body, x, max_steps, c)"
max_trip_count = 20_000


def cases(rng):
    """A loop that goes to its bound, one of no step at all, and one that ends before its bound and has no gradient
    beyond its end; with one checkpoint, with a few, with a divisor of the steps, and with as many as steps."""
    many = int(rng.integers(5, 58))
    few = 1 if rng.integers(3) == 0 else int(rng.integers(2, many))
    whole = 3 * int(rng.choice(range(9, 20, 2)))
    return (
        # 58 is by two or more from the next multiple of 4 to 7: whole segments are not one step too many or too few.
        # Large enough that a buffer's alignment is nothing beside it.
        _waves(58, int(rng.integers(4, 8)), 58, rng, rows=int(rng.integers(24, 40)), width=8),
        _waves(2, 2, 0, rng, rows=5, width=7, dtype="float16", called="under jax.jit"),
        _tanks(many, 1, few, width=int(rng.integers(16, 20))),
        # Segments that come out even, and a cond that is true to the end. So many steps that the states of all are more
        # than the first ones of the segments, and those of one; an odd number, as 58 is even.
        _waves(whole, 3, whole, rng, rows=5, width=7, dtype="float16"),
    )


def fits(structure):
    """In float16 the clock is not for many steps, and 58 steps are there to see how much memory they take."""
    short = structure["t"] < 6 or structure["dtype"] == "float32" or structure["t"] == structure["max_steps"]
    return structure["max_steps"] < 58 and short


def case(rng, t, dtype, max_steps, c, called):
    """A loop of so many steps, at most and taken, in so many segments."""
    return _waves(max_steps, c, t, rng, rows=24, width=8, dtype=dtype, called=called)


def _name(max_steps, c, t):
    taken = "" if t == max_steps else f", of which it takes {t or 'none'}"
    return f"{max_steps} steps at most with {c} checkpoint{'s' * (c > 1)}{taken}"


def _least(t):
    """What a number is above for t steps that is 0.5 to 1.5 at first, and after each step a quarter of what it was."""
    return 1.6 * 4.0**-t


def _loop(body, x, max_steps, c, t, of_each, name):
    """The last state, something of the state that each step begins with, and the values' names.

    cond is true for t steps, so that this loop need not ask.
    """

    def step(x, _):
        here = jax.lax.stop_gradient(x)
        return body(x), (here, of_each(here))

    last, (states, others) = jax.lax.scan(step, x, length=t)
    states = jnp.concatenate([states, *[jax.lax.stop_gradient(last)[None]] * (max_steps - t)])
    length = -(-max_steps // c)
    if beyond := c * length - max_steps:  # segments there begin with the last state
        name(jnp.concatenate([states, *[last[None]] * beyond])[::length], "each segment's first state")
    else:
        name(states[::length], "each segment's first state")
    if c < max_steps:
        name(states, "every state")
    if 1 < c < length:
        name(states[::c], "the first states of segments of c steps")
    return last, others


def _waves(max_steps, c, t, rng, rows, width, dtype="float32", called="as it is", name=None):
    """Sines of products, which change for many steps, and beside them a row that tells after how many to end."""
    w = np.linalg.qr(rng.normal(size=(width, width)))[0].astype(dtype)
    clock = np.arange(rows)[:, None] == 0

    def cond(x):
        return x[0, 0] > np.asarray(_least(t), dtype)

    def body(x):
        return jnp.where(clock, x / 4, jnp.sin(x @ w))

    if t == max_steps:  # then it takes some hundred steps until they are small
        cond, body = (lambda x: jnp.mean(x * x) > 0.01), (lambda x: jnp.sin(x @ w))

    def function(x, *, name=lambda value, called: value):
        result, cosines = _loop(body, x, max_steps, c, t, lambda x: jnp.cos(x @ w), name)
        if t:
            name(cosines, "every step's cosine")
        return name(result, "the result") if t else result

    how = ", in float16" * (dtype == "float16") + f", {called}" * (called != "as it is")
    return Case(
        name or _name(max_steps, c, t) + how,
        (jax.ShapeDtypeStruct((rows, width), dtype),),
        transform=calls.transform(called.removeprefix("under ")),
        apply=lambda answer: lambda x: answer(cond, body, x, max_steps, c),
        function=function,
        structure={"t": t, "dtype": dtype, "max_steps": max_steps, "c": c, "called": called},
    )


def _tanks(max_steps, c, t, width):
    """Tanks run out until the first is empty, through holes whose sizes are no part of the state.

    At an empty tank the square root has no gradient. Whoever takes a step too many, and throws its result away, sees
    that in the gradient and not in the value.
    """
    first = np.arange(width) == 0

    def cond(levels):
        return jnp.all(levels > 0)

    def body_of(holes):
        def body(levels):
            left = levels - 0.3 / max_steps * holes * jnp.sqrt(levels)
            quarter = levels / 4 * (levels / 4 > _least(t))
            return jax.lax.select(first, quarter, left)

        return body

    def function(levels, holes, *, name=lambda value, called: value):
        result, _ = _loop(body_of(holes), levels, max_steps, c, t, lambda levels: (), name)
        return name(result, "the result")

    return Case(
        _name(max_steps, c, t),
        (jax.ShapeDtypeStruct((width,), jnp.float32),) * 2,
        apply=lambda answer: lambda levels, holes: answer(cond, body_of(holes), levels, max_steps, c),
        function=function,
        structure={"t": t, "max_steps": max_steps, "c": c},
    )


shown = _waves(64, 8, 64, np.random.default_rng(0), rows=256, width=64, name="for 64 steps in 8 segments")

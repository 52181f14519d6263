"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "t": Integers(0, "max_steps"),
    "dtype": OneOf(("float32", "float16")),
    "max_steps": Integers(2, 58),
    "c": Integers(1, "max_steps"),
    "called": OneOf(("directly", "under jax.jit")),
}
signature = "checkpointed_while(cond, body, x, max_steps, c)"
max_trip_count = 20_000


def cases(rng):
    """Draw a loop that takes all of its steps, one that takes none, and one that ends early and whose body has no
    finite gradient afterwards; `c` is 1, a few, a divisor of the number of steps, and that number itself."""
    many = int(rng.integers(5, 58))
    few = 1 if rng.integers(3) == 0 else int(rng.integers(2, many))
    whole = 3 * int(rng.choice(range(9, 20, 2)))
    return (
        # 58 differs by at least 2 from the multiples of 4 to 7, so that whole segments have at least two steps too many
        # or too few. The arrays are so large that the alignment of buffers does not matter.
        case(rng, 58, 58, int(rng.integers(4, 8)), rows=int(rng.integers(24, 40))),
        case(rng, 0, 2, 2, rows=5, width=7, dtype="float16", called="under jax.jit"),
        _tanks_case(many, 1, few, width=int(rng.integers(16, 20))),
        # Segments of equal length, and a cond that stays true. There are so many steps that all their states need more
        # memory than the segments' first states and the states of one segment; an odd number, as 58 is even.
        case(rng, whole, whole, 3, rows=5, width=7, dtype="float16"),
    )


def fits(structure):
    """Return whether float16 can count this many steps; 58 steps are reserved for the case that measures memory."""
    short = structure["t"] < 6 or structure["dtype"] == "float32" or structure["t"] == structure["max_steps"]
    return structure["max_steps"] < 58 and short


def _case_name(max_steps, c, t):
    taken = "all steps" if t == max_steps else f"{t} step{'s' * (t != 1)}"
    return f"max_steps = {max_steps}, c = {c}, {taken} taken"


def _least_bound(t):
    """Return a bound that a number between 0.5 and 1.5 exceeds until it has been divided by 4 `t` times."""
    return 1.6 * 4.0**-t


def _loop(body, x, max_steps, c, t, of_each, name):
    """Return the last state and `of_each` of every step's first state, and name the values.

    The loop takes exactly `t` steps, for which cond is true.
    """

    def step(x, _):
        here = jax.lax.stop_gradient(x)
        return body(x), (here, of_each(here))

    last, (states, others) = jax.lax.scan(step, x, length=t)
    states = jnp.concatenate([states, *[jax.lax.stop_gradient(last)[None]] * (max_steps - t)])
    length = -(-max_steps // c)
    if beyond := c * length - max_steps:  # these segments start with the last state
        name(jnp.concatenate([states, *[last[None]] * beyond])[::length], "each segment's first state")
    else:
        name(states[::length], "each segment's first state")
    if c < max_steps:
        name(states, "every state")
    if 1 < c < length:
        name(states[::c], "the first states of segments of c steps")
    return last, others


def case(rng, t, max_steps, c, dtype="float32", called="directly", rows=24, width=8, name=None):
    """Return a case whose loop takes `t` of at most `max_steps` steps.

    Its state has sines of a matmul, which change for many steps, and one row that ends the loop after `t`.
    """
    w = np.linalg.qr(rng.normal(size=(width, width)))[0].astype(dtype)

    def cond(x):
        return x[0, 0] > np.asarray(_least_bound(t), dtype)

    # Rows that are concatenated, and not selected: a saved mask would add to the memory of each step.
    def body(x):
        return jnp.concatenate([x[:1] / 4, jnp.sin(x[1:] @ w)])

    computed = slice(1, None)
    if t == max_steps:  # they stay large for hundreds of steps
        cond, body = (lambda x: jnp.mean(x * x) > 0.01), (lambda x: jnp.sin(x @ w))
        computed = slice(None)

    def function(x, *, name=lambda value, called: value):
        result, cosines = _loop(body, x, max_steps, c, t, lambda x: jnp.cos(x[computed] @ w), name)
        if t:
            name(cosines, "every step's cosine")
        return name(result, "the result") if t else result

    how = ", in float16" * (dtype == "float16") + f", {called}" * (called != "directly")
    return Case(
        name or _case_name(max_steps, c, t) + how,
        (jax.ShapeDtypeStruct((rows, width), dtype),),
        transform=case_functions.transform(called.removeprefix("under ")),
        apply=lambda answer: lambda x: answer(cond, body, x, max_steps, c),
        function=function,
        structure={"t": t, "dtype": dtype, "max_steps": max_steps, "c": c, "called": called},
    )


def _tanks_case(max_steps, c, t, width):
    """Return a case with water tanks that run out until the first is empty; the body closes over the holes' sizes.

    The square root has no finite gradient at an empty tank. An answer that computes one more step and discards its
    result therefore has the right value and a wrong gradient.
    """
    first = np.arange(width) == 0

    def cond(levels):
        return jnp.all(levels > 0)

    def body_of(holes):
        def body(levels):
            left = levels - 0.3 / max_steps * holes * jnp.sqrt(levels)
            quarter = levels / 4 * (levels / 4 > _least_bound(t))
            return jax.lax.select(first, quarter, left)

        return body

    def function(x, holes, *, name=lambda value, called: value):
        result, _ = _loop(body_of(holes), x, max_steps, c, t, lambda levels: (), name)
        return name(result, "the result")

    return Case(
        _case_name(max_steps, c, t),
        (jax.ShapeDtypeStruct((width,), jnp.float32),) * 2,
        apply=lambda answer: lambda x, holes: answer(cond, body_of(holes), x, max_steps, c),
        function=function,
        structure={"t": t, "max_steps": max_steps, "c": c},
    )


shown = case(np.random.default_rng(0), 64, 64, 8, rows=256, width=64, name="for 64 steps in 8 segments")

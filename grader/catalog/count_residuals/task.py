"""What an answer is asked."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Question

parameters = ("f", "args")
ranges: dict = {}
signature = "count_residuals(f, *args)"
returns = "(n, bytes), two integers"


def cases(rng):
    """Functions that no page shows, with widths and lengths drawn anew. Each tells one way of counting apart.

    None is 4 long: bytes of one iteration would be as many as elements of all. Where an answer might count one argument
    too many, the output is smaller than that, since it might count the output."""
    a, b, length = map(int, rng.permutation([3, 5, 6, 7, 9])[:3])

    def ones(*shape, dtype=jnp.float32):
        return jnp.ones(shape, dtype)

    return (
        Question(
            "a product and relu, in bfloat16", (_activated, ones(b, a, dtype=jnp.bfloat16), ones(a, dtype=jnp.bfloat16))
        ),
        Question("a number written in the function", (_scaled, ones(a))),
        Question("a chain of sines", (_waves, ones(b))),
        Question("a scan", (_deep, ones(length, a, a), ones(a))),
        Question("one array given for two parameters", (_cubic, *[ones(b)] * 2)),
        Question("one array twice in a dict", (_wave, dict.fromkeys(("time", "phase"), ones(b)))),
    )


def _activated(w, x):
    return jax.nn.relu(w @ x)


def _scaled(x):
    return jnp.sum(jnp.exp(-0.5 * jnp.tanh(x))) / 3


def _waves(x):
    for _ in range(5):
        x = jnp.sin(x)
    return jnp.sum(x)


def _deep(ws, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(w @ x), None), x, ws)[0]


def _cubic(x, y):
    return x * y * x


def _wave(parameters):
    return jnp.sum(jnp.sin(parameters["time"]) * parameters["phase"])


shown = None

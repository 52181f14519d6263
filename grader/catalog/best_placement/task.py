"""What an answer is tried on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercise import Case

parameters = ("stages",)
signature = "best_placement(stages)"


def cases(rng):
    """Lists of several lengths, at shapes drawn anew. All weights are square, so that stages can be mixed up."""
    return (
        _case("four stages", 4, rng),
        _case("two stages, under vmap", 2, rng, batch=(2,)),
        _case("one stage", 1, rng),
    )


def _case(name, count, rng, batch=(), shape=None):
    rows, width = shape or map(int, rng.permutation([5, 6, 7, 8, 9])[:2])
    stages = [_stage(_weights(rng, width), _weights(rng, width)) for _ in range(count)]

    def function(x, *, name=_unnamed):
        for number, stage in enumerate(stages, 1):
            which = "the last stage" if number == count else f"stage {number}"
            x = stage(x, functools.partial(_named, name, which))
        return x

    return Case(
        name,
        (jax.ShapeDtypeStruct((*batch, rows, width), jnp.float32),),
        transform=jax.vmap if batch else lambda f: f,
        apply=lambda answer: answer([_one_argument(stage) for stage in stages]),
        function=function,
    )


def _stage(a, b):
    """Two products, two sines: enough inside that a checkpoint around it pays."""

    def stage(x, name):
        u = name(x @ a, "first product")
        name(jnp.cos(u), "first cosine")
        v = name(name(jnp.sin(u), "inner sine") @ b, "second product")
        name(jnp.cos(v), "second cosine")
        return name(jnp.sin(v), "output")

    return stage


def _one_argument(stage):
    return lambda x: stage(x, _unnamed)


def _named(name, which, value, what):
    return name(value, f"{which}'s {what}")


def _unnamed(value, name):
    return value


def _weights(rng, width):
    size = 1.5 / width**0.5
    return (size * rng.uniform(0.5, 1, (width, width)) * rng.choice([-1, 1], (width, width))).astype(np.float32)


shown = _case("for four stages of the checker's", 4, np.random.default_rng(0), shape=(256, 64))

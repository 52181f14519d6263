"""What an answer is tried on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from grader.answers.failures import Unusable
from grader.exercises.spec import Case

parameters = ("stages",)
ranges: dict = {}
signature = "best_placement(stages)"


def cases(rng):
    """Lists of several lengths, at shapes drawn anew. All weights are square, so that stages can be mixed up."""
    return (
        _case("four stages", "abcd", rng),
        _case("two stages under vmap", "ab", rng, batch=(2,)),
        _case("one stage", "a", rng),
        _case("stages 1 and 3 the same function", "aba", rng),
    )


def _case(name, letters, rng, batch=(), shape=None):
    """A list of stages; the same letter twice is the same function twice."""
    rows, width = shape or map(int, rng.permutation([5, 6, 7, 8, 9])[:2])
    by_letter = {letter: _stage(_weights(rng, width), _weights(rng, width)) for letter in sorted(set(letters))}
    one_argument = {letter: _one_argument(stage) for letter, stage in by_letter.items()}

    def function(x, *, name=_unnamed):
        for number, letter in enumerate(letters, 1):
            which = "the last stage" if number == len(letters) else f"stage {number}"
            x = by_letter[letter](x, functools.partial(_named, name, which))
        return x

    return Case(
        name,
        (jax.ShapeDtypeStruct((*batch, rows, width), jnp.float32),),
        transform=jax.vmap if batch else lambda f: f,
        apply=lambda answer: _applied(answer, [one_argument[letter] for letter in letters]),
        function=function,
    )


def _applied(answer, stages):
    """What the answer makes of a list of stages, which it may read and not change: it belongs to the caller."""
    given = list(stages)
    function = answer(stages)
    if not callable(function):
        return function

    def run(x):
        output = function(x)
        if stages != given:
            raise Unusable("Your answer changes the list of stages that it was given.")
        return output

    return run


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


shown = _case("for four stages of the checker's", "abcd", np.random.default_rng(0), shape=(256, 64))

"""What an answer is tried on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.case_functions import mixing_weights
from grader.exercises.spec import Case, Integers, OneOf
from grader.tracing.failures import Unusable

parameters = ("stages",)
ranges = {
    "n": Integers(1, 8),
    "axes": Integers(1, 3),
    "m": Integers(1, 32),
    "w": Integers(1, 32),
    "dtype": OneOf(("float32", "float16")),
    "called": case_functions.CALLED,
}
signature = "best_placement(stages)"


def cases(rng):
    """Return some stages, two, one, and many of which some are the same function, the last one and an earlier one among
    them.

    All weights are square, so that stages can be mixed up. Some stages take vectors; two take arrays of three axes, the
    first of size 1. Of one number at a time many sines make few different ones, so few stages are given that. What the
    answer returns has been called before in some, once or a few times.
    """
    some, rows, *widths = map(int, (rng.integers(3, 8), rng.integers(2, 32), *rng.integers(4, 32, 3)))
    ways, before = map(str, rng.permutation(["jax.jit", "jax.vmap"])), map(int, rng.permutation([1, 2, 3]))
    return (
        _make_case(rng, "abcdefg"[:some], (widths[0],), "float32", "as it is"),
        _make_case(rng, "ab", (1, rows, widths[1]), "float16", next(ways), before=next(before)),
        _make_case(rng, "a", (1, widths[2]), "float32", "as it is"),
        _make_case(rng, "abc"[: int(rng.integers(2, 4))], (1,), "float32", "as it is", before=next(before)),
        _make_case(rng, _repeating_letters(rng, 8, "aab"), (32, 32), "float32", next(ways), before=next(before)),
    )


def case(rng, n, axes, m, w, dtype, called):
    """So many stages of this width, some of which may be the same function; not where few numbers go through them: what
    comes of the same sines again and again is nearly one value, and no stage could be told from another."""
    letters = _repeating_letters(rng, n, "aa") if n > 2 and w > 8 and rng.integers(2) else "abcdefgh"[:n]
    return _make_case(rng, letters, (1, m, w)[-axes:], dtype, called)


def _repeating_letters(rng, n, first):
    """Return n letters that begin with these. The last one is an earlier one too; perhaps all are the same."""
    letters = [*first, *rng.choice(list("abcdef"[: rng.integers(1, 7)]), n - 1 - len(first))]
    return "".join([*letters, letters[rng.integers(n - 1)]])


_BEFORE = "", ", called once before", ", called twice before", ", called three times before"


def _make_case(rng, letters, shape, dtype, called, before=0):
    """Return a list of stages; the same letter twice is the same function twice."""
    n, structure = len(letters), {"axes": len(shape), "w": shape[-1], "dtype": dtype, "called": called}
    structure |= {"m": shape[-2]} if len(shape) > 1 else {}
    same = "" if len(set(letters)) == n else ", some of them the same function"
    return _make_stages(
        f"{n} stage{'s' if n > 1 else ''}{same}{case_functions.where(called)}{_BEFORE[before]}",
        letters,
        rng,
        jax.ShapeDtypeStruct(((2,) if called == "jax.vmap" else ()) + shape, dtype),
        transform=case_functions.transform(called),
        before=before,
        structure={"n": n, "same": bool(same), **structure},
    )


def _make_stages(name, letters, rng, x, before=0, **fields):
    width = x.shape[-1]

    def weights():
        # Of a single number, sines with one and the same factor soon have one value.
        return mixing_weights(rng, width, 1.5 if width > 1 else rng.uniform(0.6, 1.6), "float32")

    by_letter = {letter: _stage(weights(), weights()) for letter in sorted(set(letters))}
    one_argument = {letter: _one_argument(stage) for letter, stage in by_letter.items()}

    def function(x, *, name=_without_name):
        for number, letter in enumerate(letters, 1):
            which = "the last stage" if number == len(letters) else f"stage {number}"
            x = by_letter[letter](x, functools.partial(_name_value, name, which))
        return x

    return Case(
        name,
        (x,),
        apply=lambda answer: _apply_answer(answer, [one_argument[letter] for letter in letters], before),
        function=function,
        **fields,
    )


def _apply_answer(answer, stages, before):
    """Return what the answer makes of a list of stages, which it may read and not change: it belongs to the caller. It
    may be called more than once: so often before."""
    given = list(stages)
    function = answer(stages)
    if not callable(function):
        return function

    def run(x):
        for _ in range(before):
            jax.eval_shape(lambda x: function(x), x)  # another function to JAX, which remembers what it has traced
        output = function(x)
        if stages != given:
            raise Unusable("Your answer changes the list of stages that it was given.")
        return output

    return run


def _stage(a, b):
    """Return two matmuls and two sines: enough that a checkpoint around them pays off."""

    def stage(x, name):
        u = name(x @ a.astype(x.dtype), "first matmul")
        name(jnp.cos(u), "first cosine")
        v = name(name(jnp.sin(u), "inner sine") @ b.astype(x.dtype), "second matmul")
        name(jnp.cos(v), "second cosine")
        return name(jnp.sin(v), "output")

    return stage


def _one_argument(stage):
    return lambda x: stage(x, _without_name)


def _name_value(name, which, value, what):
    return name(value, f"{which}'s {what}")


def _without_name(value, name):
    return value


def _draw_weights(rng, width):
    return [mixing_weights(rng, width, 1.5, "float32") for _ in range(2)]


shown = _make_stages(
    "for four stages of the grader",
    "abcd",
    np.random.default_rng(0),
    jax.ShapeDtypeStruct((256, 64), jnp.float32),
)

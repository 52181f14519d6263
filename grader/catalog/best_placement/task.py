"""What an answer is tried on."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.case_functions import mixing_weights
from grader.exercises.spec import Case, Integers, OneOf
from grader.tracing.failures import Unusable

ranges = {
    "n": Integers(1, 8),
    "axes": Integers(1, 3),
    "m": Integers(1, 32),
    "w": Integers(6, 20),
    "dtype": OneOf(("float32", "float16")),
    "called": case_functions.CALLED,
}
signature = "best_placement(stages)"


class StageSizes(NamedTuple):
    """The residuals of a stage without a checkpoint: a number of cosines of a width."""

    cosines: int
    width: int


def cases(rng):
    """Return cases with stages of each kind in a random order, with two stages, with one, and with many, some of which
    are the same function.

    The kinds are those of `_draw_sizes`. In some lists, the first stage saves little, and in others the last one. In
    some cases, the function that the answer returns has been called before, once or a few times.
    """
    some, rows, *widths = map(int, (rng.integers(5, 8), rng.integers(2, 32), *rng.integers(7, 20, 2)))
    ways, before = map(str, rng.permutation(["jax.jit", "jax.vmap"])), map(int, rng.permutation([1, 2, 3]))
    middle = [str(kind) for kind in rng.permutation(["wide", "deep", "small", "two small"])]
    return (
        _make_case(rng, ["small", *middle, "deep", "wide"][:some], (widths[0],), "float32", "directly"),
        _make_case(rng, ["wide", "just small"], (1, rows, widths[1]), "float16", next(ways), before=next(before)),
        _make_case(rng, ["small"], (1, 6), "float32", "directly"),
        _make_case(rng, ["two small", "deep", "just wide"], (1, 20), "float32", "directly", before=next(before)),
        _make_case(
            rng,
            ["small", *middle, "wide"],
            (32, 20),
            "float32",
            next(ways),
            before=next(before),
            order=(0, 1, 1, 2, 3, 4, 5, 0),
        ),
    )


def case(rng, n, axes, m, w, dtype, called):
    """Return a case with a number of stages of a width, some of which may be the same function."""
    kinds = [str(kind) for kind in rng.choice(["wide", "deep", "small", "two small"], size=n)]
    order = rng.integers(n, size=n) if n > 2 and rng.integers(2) else range(n)
    return _make_case(rng, kinds, (1, m, w)[-axes:], dtype, called, order=tuple(map(int, order)))


def _draw_sizes(rng, kind, width):
    """Return the sizes of a stage whose cosines take at least 1.25 times its input, or at most 0.75 times its input.

    A wide stage has one cosine that is wider than the input. A deep stage has several narrower cosines that are larger
    in total. "Just wide" and "just small" stages are at the limits.
    """
    match kind:
        case "wide":
            return StageSizes(1, int(rng.integers(-(-5 * width // 4), 2 * width + 1)))
        case "deep":
            return StageSizes(3, int(rng.integers(-(-5 * width // 12), 3 * width // 4 + 1)))
        case "just wide":
            return StageSizes(1, -(-5 * width // 4))
        case "just small":
            return StageSizes(1, 3 * width // 4)
        case "small":
            return StageSizes(1, int(rng.integers(2, 3 * width // 4 + 1)))
    return StageSizes(2, int(rng.integers(2, max(3, 3 * width // 8 + 1))))


_BEFORE = "", ", called once before", ", called twice before", ", called three times before"


def _make_case(rng, kinds, shape, dtype, called, before=0, order=None):
    """Return a case with a list of stages of these kinds. `order` contains the index of each stage, and may repeat
    indices."""
    order = tuple(range(len(kinds))) if order is None else order
    n, structure = len(order), {"axes": len(shape), "w": shape[-1], "dtype": dtype, "called": called}
    structure |= {"m": shape[-2]} if len(shape) > 1 else {}
    same = "" if len(set(order)) == n else ", some of them the same function"
    return _make_stages(
        f"{n} stage{'s' if n > 1 else ''}{same}{case_functions.where(called)}{_BEFORE[before]}",
        [_draw_sizes(rng, kind, shape[-1]) for kind in kinds],
        order,
        rng,
        jax.ShapeDtypeStruct(((2,) if called == "jax.vmap" else ()) + shape, dtype),
        transform=case_functions.transform(called),
        before=before,
        structure={"n": n, "same": bool(same), **structure},
    )


def _make_stages(name, sizes, order, rng, x, structure, before=0, **fields):
    width = x.shape[-1]
    different = [_make_stage(each.cosines, *_draw_weights(rng, width, each.width)) for each in sizes]
    one_argument = [_one_argument(stage) for stage in different]

    def function(x, *, name=_without_name):
        for number, which in enumerate(order, 1):
            x = different[which](x, functools.partial(_name_value, name, f"stage {number}"))
        return x

    return Case(
        name,
        (x,),
        apply=lambda answer: _apply_answer(answer, [one_argument[which] for which in order], before),
        function=function,
        structure=structure | {"sizes": tuple(sizes[which] for which in order)},
        **fields,
    )


def _apply_answer(answer, stages, before):
    """Return the function that the answer returns for a list of stages, which the answer must not change. Call this
    function `before` times first."""
    given = list(stages)
    function = answer(stages)
    if not callable(function):
        return function

    def run(x):
        for _ in range(before):
            jax.eval_shape(lambda x: function(x), x)  # a new function each time, because JAX caches traces
        output = function(x)
        if stages != given:
            raise Unusable("Your answer changes the list of stages that it was given.")
        return output

    return run


def _make_stage(cosines, a, b):
    """Return a residual block: a matmul, a number of sines, another matmul, and a sum with its input."""

    def stage(x, name):
        y = name(x @ a.astype(x.dtype), "matmul")
        for number in range(1, cosines + 1):
            name(jnp.cos(y), f"cosine {number}")
            y = name(jnp.sin(y), f"sine {number}")
            y = y if number == cosines else 2 * y
        return name(x + y @ b.astype(x.dtype), "output")

    return stage


def _draw_weights(rng, width, inner):
    """Return weights (width, inner) and (inner, width) whose matmuls neither shrink nor amplify values much."""
    most = max(width, inner)
    a = mixing_weights(rng, most, 1.3 * (most / width) ** 0.5, "float32")[:width, :inner]
    b = mixing_weights(rng, most, 0.7 * (most / inner) ** 0.5, "float32")[:inner, :width]
    return a, b


def _one_argument(stage):
    return lambda x: stage(x, _without_name)


def _name_value(name, which, value, what):
    return name(value, f"{which}'s {what}")


def _without_name(value, name):
    return value


shown = _make_stages(
    "for four stages of the grader",
    [StageSizes(1, 16), StageSizes(1, 256), StageSizes(1, 16), StageSizes(3, 48)],
    (0, 1, 2, 3),
    np.random.default_rng(0),
    jax.ShapeDtypeStruct((256, 64), jnp.float32),
    {"n": 4, "same": False},
)

"""What an answer is tried on."""

import re

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.named_values import CALLED, MOST, alike, case_of, values_of
from grader.exercises.spec import Case, Integers, OneOf

parameters = ("pattern",)
ranges = {
    "pattern": OneOf(("a name", "alternatives", "a class", "anything", "nothing")),
    "m": Integers(0, MOST),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf((*CALLED, "jax.lax.scan")),
}
signature = "regex_policy(pattern)"


def cases(rng):
    """Functions with names that are nearly the same, and layers in a scan, with patterns of every kind."""
    word, *others = alike(rng)
    number = f"layer{rng.integers(10)}"
    paths = [f"{number}/{word}", f"{number}/{word}2", f"{number}x/{word}", f"layer/{word}", f"{number}/{word}"]
    return (
        _case("a name that others are like", [word, *others[:4]], re.escape(word), "a name", rng),
        _scan("layers in a scan", r"mlp|out", "alternatives", rng),
        _case("names with numbers", paths, rf"layer\d/{word}", "a class", rng, "jax.vmap"),
        _case("any name", [*map(str, rng.permutation(others)[: MOST - 1]), word], r".*", "anything", rng, "jax.jit"),
        _case("two names of several", [others[0], word, *others[5:7]], rf"{word}|{word[:-1]}", "alternatives", rng),
        _case("no value has a name", [], r".*", "anything", rng),
        _case("half precision", others[6:9], rf"{word}.+", "nothing", rng, dtype="float16"),
    )


def _case(case, has, pattern, kind, rng, called="directly", dtype="float32"):
    values = values_of([*map(str, has)], rng, half=dtype != "float32")
    return case_of(
        case,
        values,
        lambda answer, f: jax.checkpoint(f, policy=answer(pattern)),
        rng,
        dtype,
        called,
        pattern=kind,
        saved=[name for name in map(str, has) if re.fullmatch(pattern, name)],
    )


def _layer(w, x, name):
    y = name(x @ w, "mlp")
    gate = name(jnp.tanh(y), "mlp_gate")
    return x + name(jnp.sin(y * gate), "out")


def _scan(case, pattern, kind, rng, shapes=None):
    layers, rows, width = shapes or (3, *map(int, rng.permutation([5, 6, 7, 8])[:2]))

    def apply(answer):
        step = jax.checkpoint(lambda x, w: (_layer(w, x, checkpoint_name), None), policy=answer(pattern))
        return lambda ws, x: jax.lax.scan(step, x, ws)[0]

    def function(ws, x, *, name=lambda value, called: value):
        def turn(x, w):
            named = {"input": x}
            x = _layer(w, x, lambda value, called: named.setdefault(called, value))
            return x, jax.lax.stop_gradient(named)

        result, stacked = jax.lax.scan(turn, x, ws)
        for called, values in stacked.items():
            name(values, f"all turns' {called}")
        return name(result, "the result")

    return Case(
        case,
        (jax.ShapeDtypeStruct((layers, width, width), jnp.float32), jax.ShapeDtypeStruct((rows, width), jnp.float32)),
        apply=apply,
        function=function,
        structure={"pattern": kind, "m": 3, "dtype": "float32", "called": "jax.lax.scan"},
    )


shown = _scan("for 24 layers of the checker's, saving mlp", "mlp", "a name", None, (24, 128, 256))

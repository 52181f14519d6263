"""What an answer is tried on."""

import re

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.case_functions import CALLERS, MOST, alike, case_of, values_of
from grader.exercises.policies import checkpointed
from grader.exercises.spec import Case, Integers, OneOf

parameters = ("pattern",)
ranges = {
    "pattern": OneOf(("a name", "alternatives", "a class", "anything", "nothing")),
    "m": Integers(0, MOST),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf((*CALLERS, "jax.lax.scan")),
}
signature = "regex_policy(pattern)"


def cases(rng):
    """Draw functions with similar names, and layers in a scan, with patterns of every kind."""
    word, *others = alike(rng)
    low, high = f"layer{rng.integers(5)}", f"layer{rng.integers(5, 10)}"
    paths = [f"{low}/{word}", f"{low}/{word}2", f"{high}/{word}", f"{high}4/{word}", f"layer/{word}", f"{low}/{word}"]
    short, title, capitals = word[:-1], word.title(), word.upper()
    inside = [f"{word}/in", f"{short}/out", word, f"{short}/in/out", f"x{word}/in", f"{word}/inner"]
    several = [others[0], word, short, short + word, f"{word} "]
    # The end of the last name decides, however long the name is.
    outs = [word, f"{word}2", f"{word}.out", f"x{word}", f"{word}/{word * 8}/out"]
    spaced = [f"{title} 12", f"{capitals} 7", f"{word} 12", f"{title}12", f"{title} x", f"{title}  1", f"{title} "]
    return (
        _make_case("a name with similar other names", [word, *others[:4]], re.escape(word), "a name", rng),
        _scan_case("layers in a scan", r"mlp|out", "alternatives", rng),
        _make_case("names with numbers", paths, rf"layer\d/{word}", "a class", rng, "jax.vmap"),
        _make_case(
            "any name",
            [*rng.permutation(others)[: MOST - 3], f"{low}/{word}", "", word],
            r".*",
            "anything",
            rng,
            "jax.jit",
        ),
        # `re.match` would stop at the shorter alternative.
        _make_case("alternatives, the shorter one first", several, rf"{short}|{word}", "alternatives", rng),
        _make_case("alternatives in groups", inside, rf"({word}|{short})/(?:in|out)", "alternatives", rng),
        _make_case("capital letters and spaces", spaced, r"[A-Z]\w+ \d+", "a class", rng, "jax.jit"),
        _make_case("a negative lookahead", outs, rf"(?!.*out){word}.*", "a class", rng),
        _make_case("no value has a name", [], r".*", "anything", rng),
        _make_case("in float16", [f"x{word}", capitals, word], rf"{word}.+", "nothing", rng, dtype="float16"),
    )


def fits(structure):
    """Return whether the structure exists: the layers in a scan always have three names in float32."""
    return structure["called"] != "jax.lax.scan" or (structure["m"], structure["dtype"]) == (3, "float32")


def case(rng, pattern, m, dtype, called):
    """Return a case with a pattern of this kind and a function with `m` named values."""
    scanned = called == "jax.lax.scan"
    words = [*_NAMES] if scanned else alike(rng)
    one, *more = map(str, rng.permutation(words)[: 1 + rng.integers(2, 4)])
    text = {
        "a name": re.escape(one),
        "alternatives": "|".join(map(re.escape, [one, *more])),
        "a class": rf"{one[0]}[a-z]*",
        "anything": (".*", ".+", "(.*)")[rng.integers(3)],
        "nothing": f"{re.escape(one)}{one}|",
    }[pattern]
    title = f"pattern {text}, {m} named value{'s' * (m != 1)}, {dtype}, called {'by ' * (called != 'directly')}{called}"
    if scanned:
        return _scan_case(title, text, pattern, rng)
    return _make_case(title, [str(name) for name in rng.permutation(words)[:m]], text, pattern, rng, called, dtype)


def _make_case(case, has, pattern, kind, rng, called="directly", dtype="float32"):
    values = values_of([*map(str, has)], rng, half=dtype != "float32")
    return case_of(
        case,
        values,
        lambda answer, f: checkpointed(f, answer(pattern)),
        rng,
        dtype,
        called,
        pattern=kind,
        saved=[name for name in map(str, has) if re.fullmatch(pattern, name)],
    )


_NAMES = "mlp", "mlp_gate", "out"


def _layer(w, x, name):
    y = name(x @ w, "mlp")
    gate = name(jnp.tanh(y), "mlp_gate")
    return x + name(jnp.sin(y * gate), "out")


def _scan_case(case, pattern, kind, rng, shapes=None):
    layers, rows, width = shapes or (3, *map(int, rng.permutation([5, 6, 7, 8])[:2]))

    def apply(answer):
        step = checkpointed(lambda x, w: (_layer(w, x, checkpoint_name), None), answer(pattern))
        return (lambda ws, x: jax.lax.scan(step, x, ws)[0]) if callable(step) else step

    def function(ws, x, *, name=lambda value, called: value):
        def body(x, w):
            named = {"input": x}
            x = _layer(w, x, lambda value, called: named.setdefault(called, value))
            return x, jax.lax.stop_gradient(named)

        result, stacked = jax.lax.scan(body, x, ws)
        for called, values in stacked.items():
            name(values, f"all iterations' {called}")
        return name(result, "the result")

    return Case(
        case,
        (jax.ShapeDtypeStruct((layers, width, width), jnp.float32), jax.ShapeDtypeStruct((rows, width), jnp.float32)),
        apply=apply,
        function=function,
        structure={
            **{"pattern": kind, "m": 3, "dtype": "float32", "called": "jax.lax.scan"},
            "saved": [name for name in _NAMES if re.fullmatch(pattern, name)],
        },
    )


shown = _scan_case("for 24 layers, saving mlp", "mlp", "a name", None, (24, 128, 256))

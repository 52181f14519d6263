"""What an answer is tried on."""

import re

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.case_functions import CALLED, MOST, alike, case_of, values_of
from grader.exercises.policies import checkpointed
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "rules": Integers(0, 4),
    "m": Integers(0, MOST),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf((*CALLED.values, "jax.lax.scan")),
}
signature = "policy_from_rules(rules)"

_ACTIONS = "save", "offload", "recompute"


def cases(rng):
    """Draw functions with similar names, and layers in a scan, under rules of which some overlap."""
    word, *others = alike(rng)
    low, high = f"layer{rng.integers(5)}", f"layer{rng.integers(5, 10)}"
    paths = [f"{low}/{word}", f"{low}/{word}2", f"{high}/{word}", f"{high}4/{word}", f"layer/{word}", f"{low}/{word}"]
    short, title, capitals = word[:-1], word.title(), word.upper()
    several = [others[0], word, short, short + word, f"{word} "]
    spaced = [f"{title} 12", f"{capitals} 7", f"{word} 12", f"{title}12", f"{title} x", f"{title}  1", f"{title} "]
    inside = [f"{word}/in", f"{short}/out", f"{short}/in/out", f"x{word}/in", f"{word}/{word * 8}/out"]
    # Names that differ only in case would give a finding about case, although the mistake may be the order of rules.
    similar = [name for name in others if name.lower() != word.lower()]
    every = [*similar[: MOST - 3], f"{low}/{word}", "", word]
    return (
        _make_case("one of several similar names", [word, *similar[:4]], [(re.escape(word), "save")], rng),
        _scan_case("layers in a scan", [("out|mlp", "save")], rng),
        _scan_case("layers in a scan, with a rule that offloads", [("mlp_.*", "save"), ("mlp.*", "offload")], rng),
        _make_case("all names but one", every, [(re.escape(word), "recompute"), (".*", "save")], rng, "jax.jit"),
        _make_case(
            "names with numbers",
            paths,
            [(rf"layer\d/{word}", "save"), (rf".*/{word}", "offload"), (f"{high}.*", "save"), (r".*\d", "recompute")],
            rng,
            "jax.vmap",
        ),
        # `re.match` would stop at the shorter alternative.
        _make_case("alternatives, the shorter one first", several, [(rf"{short}|{word}", "save")], rng),
        _make_case(
            "a name that three rules match",
            inside,
            [(rf"({word}|{short})/(?:in|out)", "offload"), (rf"{word}/.*", "recompute"), (".*", "save")],
            rng,
        ),
        _make_case("capital letters and spaces", spaced, [(r"[A-Z]\w+ \d+", "save")], rng, "jax.jit"),
        _make_case("two names that differ only in case", [capitals, word], [(re.escape(word), "save")], rng),
        _make_case("no value has a name", [], [(".*", "save")], rng),
        _make_case("no rules", [word, *others[:2]], [], rng),
        _make_case("in float16", [f"x{word}", capitals, word], [(rf"{word}.+", "save")], rng, dtype="float16"),
    )


def fits(structure):
    """Return whether the structure exists: the layers in a scan always have three names in float32."""
    return structure["called"] != "jax.lax.scan" or (structure["m"], structure["dtype"]) == (3, "float32")


def case(rng, rules, m, dtype, called):
    """Return a case with this number of drawn rules for a function with `m` named values."""
    scanned = called == "jax.lax.scan"
    words = list(_NAMES) if scanned else alike(rng)
    drawn = [(_draw_pattern(words, rng), _ACTIONS[rng.integers(3)]) for _ in range(rules)]
    title = f"rules {drawn}, {m} named value{'s' * (m != 1)}, {dtype}, called {'by ' * (called != 'directly')}{called}"
    if scanned:
        return _scan_case(title, drawn, rng)
    return _make_case(title, [str(name) for name in rng.permutation(words)[:m]], drawn, rng, called, dtype)


def _draw_pattern(words, rng):
    one, other = map(str, rng.permutation(words)[:2])
    start = re.escape(one[:1])
    patterns = re.escape(one), f"{re.escape(one)}|{re.escape(other)}", rf"{start}[a-z]*", f"{start}.*", ".*"
    return patterns[rng.integers(len(patterns))]


def _matching_action(rules, name):
    return next((action for pattern, action in rules if re.fullmatch(pattern, name)), "recompute")


def _make_case(case, has, rules, rng, called="directly", dtype="float32"):
    return case_of(
        case,
        values_of(has, rng, half=dtype != "float32"),
        lambda answer, f: checkpointed(f, answer(list(rules))),
        rng,
        dtype,
        called,
        rules=len(rules),
        actions={name: _matching_action(rules, name) for name in has},
    )


_NAMES = "mlp", "mlp_gate", "out"


def _layer(w, x, name):
    y = name(x @ w, "mlp")
    gate = name(jnp.tanh(y), "mlp_gate")
    return x + name(jnp.sin(y * gate), "out")


def _scan_case(case, rules, rng, shapes=None):
    layers, rows, width = shapes or (3, *map(int, rng.permutation([5, 6, 7, 8])[:2]))

    def apply(answer):
        step = checkpointed(lambda x, w: (_layer(w, x, checkpoint_name), None), answer(list(rules)))
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
            **{"rules": len(rules), "m": 3, "dtype": "float32", "called": "jax.lax.scan"},
            "actions": {name: _matching_action(rules, name) for name in _NAMES},
        },
    )


shown = _scan_case("for 24 layers, saving mlp", [("mlp", "save")], None, (24, 128, 256))

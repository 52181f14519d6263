"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.case_functions import float32_arrays
from grader.exercises.policies import checkpointed, in_short, named, unnamed
from grader.exercises.spec import Case, OneOf, Question

_MENU = "full", "save_out_proj", "save_qkv_proj", "minimal", "minimal_with_context"

ranges = {"name": OneOf(_MENU)}
signature = "gpt_block_policy(name)"


def cases(rng):
    """Draw a case for every entry of the menu, at random shapes whose widths all differ, and questions about names
    and about operations without a name.
    """
    return (*(_make_case(entry, rng) for entry in _MENU), *_policy_questions(rng))


def _policy_questions(rng):
    """Ask about several values of each name, of various dtypes and shapes, mixed with others, at least twice each."""
    names = [
        *_NAMES,
        *_similar_names(rng),
        "proj",
        "mlp",
        "",
        *("".join(rng.choice(list("abcdefgh"), size=5)) for _ in "12"),
    ]
    about = {repr(name): named([name] * 5, rng) for name in names}
    about |= {operation.primitive.name: [operation] for operation in unnamed(rng)}
    everything = [operation for operations in about.values() for operation in operations]

    def question(entry, what):
        others = [everything[place] for place in rng.integers(len(everything), size=6)]
        among = [*about[what], *others] * (30 if what == repr("out_proj") else 2)
        rng.shuffle(places := list(range(len(among))))
        return Question(
            f"{entry}, asked about {what}",
            (entry,),
            ask=lambda policy: in_short(policy, about[what], [among[place] for place in places]),
            structure={"name": entry},
        )

    return tuple(question(entry, what) for what in about for entry in _MENU)


_NAMES = (
    *("query_proj", "key_proj", "value_proj", "qkv_proj", "scores", "context"),
    *("out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwi_activated", "mlpwo"),
)

_CHANGES = (
    *("{}0", "{}_activated", "{} ", "{}/kernel", "x{}", "my_{}", " {}", "layer_0/{}"),
    *(str.upper, str.title, lambda name: name.replace("_", "-"), lambda name: name[:-1], lambda name: name[1:]),
)


def _similar_names(rng):
    """Yield names that are similar to the page's names: each change to `out_proj`, the only name of an entry, and to
    others; and more numbers of the numbered name."""
    yield from (f"mlpwi_{number}" for number in range(2, 10))
    for change in (f"{{}}_{rng.integers(2, 10)}", *_CHANGES):
        one, other = rng.permutation([name for name in _NAMES if name not in ("out_proj", "mlpwi")])[:2]
        for name in ("out_proj", one, other):
            changed = change.format(name) if isinstance(change, str) else change(str(name))
            if changed not in _NAMES:
                yield changed


def _stand_in(w, x, *, name=checkpoint_name):
    """Compute a block with the names of all blocks at once, in order; the backward pass needs each named value.

    Only attention itself has matmuls, so that a policy for matmuls does not pass for a policy for names.
    """
    fused = name(x * w, "qkv_proj")
    q, k, v = name(fused * 0.3, "query_proj"), name(x * 0.8, "key_proj"), name(fused * 0.25, "value_proj")
    context = name(name(q @ k.T, "scores") @ (v * fused), "context")
    y = name(context * x, "out_proj")
    gate, up, wide = name(y * 0.9, "mlpwi_0"), name(y * 0.4, "mlpwi_1"), name(y * 0.7, "mlpwi")
    hidden = name(gate * up * wide, "mlpwi_activated")
    return jnp.sum(y * name(hidden * x, "mlpwo"))


def _block(query, key, value, out, up, down, x, *, name=checkpoint_name):
    """Compute a transformer block without its norms."""
    q = name(jnp.einsum("sh,had->sad", x, query), "query_proj")
    k = name(jnp.einsum("sh,had->sad", x, key), "key_proj")
    v = name(jnp.einsum("sh,had->sad", x, value), "value_proj")
    scores = name(jnp.einsum("qad,kad->aqk", q, k), "scores")
    context = name(jnp.einsum("aqk,kad->qad", jax.nn.softmax(scores), v), "context")
    y = x + name(jnp.einsum("sad,adh->sh", context, out), "out_proj")
    return y + name(jax.nn.gelu(name(y @ up, "mlpwi")) @ down, "mlpwo")


def _make_case(entry, rng):
    rows, width = map(int, rng.permutation([5, 6, 7, 8])[:2])
    return Case(
        entry,
        float32_arrays((rows, width), (rows, width)),
        **_checkpointed_under(entry, _stand_in),
        structure={"name": entry},
    )


def _checkpointed_under(entry, block):
    return {"apply": lambda answer: checkpointed(block, answer(entry)), "function": block}


shown = Case(
    "minimal, for a block of width 64 with 4 heads and 128 tokens",
    float32_arrays(*[(64, 4, 16)] * 3, (4, 16, 64), (64, 256), (256, 64), (128, 64)),
    **_checkpointed_under("minimal", _block),
)

"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.spec import Case

parameters = ("name",)
ranges: dict = {}
signature = "gpt_block_policy(name)"


def cases(rng):
    """Every entry of the menu, for one block, at shapes drawn anew. All widths of a case differ."""
    menu = "full", "save_out_proj", "save_qkv_proj", "minimal", "minimal_with_context"
    return tuple(_case(entry, rng) for entry in menu)


def _stand_in(w, x, *, name=checkpoint_name):
    """Has the names of all blocks at once, in their order; each is needed for what comes after it.

    Only attention's own products are products, lest a policy for products pass as one for names.
    """
    fused = name(x * w, "qkv_proj")
    q, k, v = name(fused * 0.3, "query_proj"), name(x * 0.8, "key_proj"), name(fused * 0.25, "value_proj")
    context = name(name(q @ k.T, "scores") @ (v * fused), "context")
    y = name(context * x, "out_proj")
    gate, up, wide = name(y * 0.9, "mlpwi_0"), name(y * 0.4, "mlpwi_1"), name(y * 0.7, "mlpwi")
    hidden = name(gate * up * wide, "mlpwi_activated")
    return jnp.sum(y * name(hidden * x, "mlpwo"))


def _block(query, key, value, out, up, down, x, *, name=checkpoint_name):
    """A transformer block without its norms."""
    q = name(jnp.einsum("sh,had->sad", x, query), "query_proj")
    k = name(jnp.einsum("sh,had->sad", x, key), "key_proj")
    v = name(jnp.einsum("sh,had->sad", x, value), "value_proj")
    scores = name(jnp.einsum("qad,kad->aqk", q, k), "scores")
    context = name(jnp.einsum("aqk,kad->qad", jax.nn.softmax(scores), v), "context")
    y = x + name(jnp.einsum("sad,adh->sh", context, out), "out_proj")
    return y + name(jax.nn.gelu(name(y @ up, "mlpwi")) @ down, "mlpwo")


def _case(entry, rng):
    rows, width = map(int, rng.permutation([5, 6, 7, 8])[:2])
    return Case(entry, _arrays((rows, width), (rows, width)), **_under(entry, _stand_in))


def _under(entry, block):
    def apply(answer):
        policy = answer(entry)
        # policy=None would mean to save nothing. What is no policy is handed on, for capture to say what it is.
        return jax.checkpoint(block, policy=policy) if callable(policy) else policy

    return {"apply": apply, "function": block}


def _arrays(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


shown = Case(
    "minimal, for a block of width 64 with 4 heads and 128 tokens",
    _arrays(*[(64, 4, 16)] * 3, (4, 16, 64), (64, 256), (256, 64), (128, 64)),
    **_under("minimal", _block),
)

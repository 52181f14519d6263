"""Right answers to attention_block, spelled in many ways."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


def is_long(x):
    return x.shape[0] > 3 * x.shape[1]


def project(x, *weights, name=checkpoint_name):
    return [name(jnp.einsum("sh,had->sad", x, w), which) for which, w in zip("qkv", weights, strict=True)]


def saving(*names):
    return functools.partial(jax.checkpoint, policy=policies.save_only_these_names(*names))


@passes
def a_policy_for_each_shape(wq, wk, wv, wo, x):
    def block(wq, wk, wv, wo, x):
        context = checkpoint_name(jax.nn.dot_product_attention(*project(x, wq, wk, wv)), "context")
        return x + jnp.tensordot(context, wo, 2)

    policy = policies.save_only_these_names("context") if is_long(x) else policies.save_only_these_names(*"qkv")
    return jax.checkpoint(block, policy=policy)(wq, wk, wv, wo, x)


@passes
def by_flops(wq, wk, wv, wo, x):
    s, h = x.shape
    flops = {("q", "k", "v"): 3 * 2 * s * h * h, ("context",): 2 * s * s * h}

    @saving(*max(flops, key=flops.get))
    def block(wq, wk, wv, wo, x):
        q, k, v = project(x, wq, wk, wv)
        scores = jnp.einsum("qad,kad->aqk", q, k) * q.shape[-1] ** -0.5
        context = checkpoint_name(jnp.einsum("aqk,kad->qad", jax.nn.softmax(scores), v), "context")
        return x + jnp.einsum("sad,adh->sh", context, wo)

    return block(wq, wk, wv, wo, x)


@passes
def without_names(wq, wk, wv, wo, x):
    """The values passed from one checkpoint to the next are saved."""
    plain = functools.partial(project, name=lambda value, _: value)

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v)

    def combine(context, wo, x):
        return x + jnp.einsum("sad,adh->sh", context, wo)

    if is_long(x):
        context = jax.checkpoint(lambda x, *weights: attend(*plain(x, *weights)))(x, wq, wk, wv)
        return combine(context, wo, x)
    q, k, v = plain(x, wq, wk, wv)
    return jax.checkpoint(lambda q, k, v, wo, x: combine(attend(q, k, v), wo, x))(q, k, v, wo, x)


@passes
def one_fused_projection(wq, wk, wv, wo, x):
    @saving(*(("context",) if is_long(x) else ("q", "k", "v")))
    def block(wq, wk, wv, wo, x):
        q, k, v = jnp.split(jnp.einsum("sh,hbd->sbd", x, jnp.concatenate([wq, wk, wv], 1)), 3, axis=1)
        q, k, v = checkpoint_name(q, "q"), checkpoint_name(k, "k"), checkpoint_name(v, "v")
        context = checkpoint_name(jax.nn.dot_product_attention(q, k, v), "context")
        return x + jnp.einsum("sad,adh->sh", context, wo)

    return block(wq, wk, wv, wo, x)


@passes
def a_linen_module(wq, wk, wv, wo, x):
    class Block(nn.Module):
        @nn.compact
        def __call__(self, wq, wk, wv, wo, x):
            context = nn.dot_product_attention(*(y[None] for y in project(x, wq, wk, wv)))[0]
            return x + jnp.einsum("sad,adh->sh", checkpoint_name(context, "context"), wo)

    names = ("context",) if is_long(x) else ("q", "k", "v")
    policy = policies.save_only_these_names(*names)
    return nn.remat(Block, policy=policy)().apply({}, wq, wk, wv, wo, x)


@RIGHT.passes_with_advice
def without_a_barrier(wq, wk, wv, wo, x):
    names = ("context",) if is_long(x) else ("q", "k", "v")

    @functools.partial(jax.checkpoint, policy=policies.save_only_these_names(*names), prevent_cse=False)
    def block(wq, wk, wv, wo, x):
        context = checkpoint_name(jax.nn.dot_product_attention(*project(x, wq, wk, wv)), "context")
        return x + jnp.einsum("sad,adh->sh", context, wo)

    return block(wq, wk, wv, wo, x)


@passes
def heads_first(wq, wk, wv, wo, x):
    @saving(*(("context",) if is_long(x) else ("q", "k", "v")))
    def block(wq, wk, wv, wo, x):
        q, k, v = (
            checkpoint_name(jnp.einsum("sh,had->asd", x, w), n) for n, w in zip("qkv", (wq, wk, wv), strict=True)
        )
        weights = jax.nn.softmax(q @ k.swapaxes(1, 2) / jnp.sqrt(q.shape[-1]).astype(q.dtype))
        return x + jnp.einsum("asd,adh->sh", checkpoint_name(weights @ v, "context"), wo)

    return block(wq, wk, wv, wo, x)

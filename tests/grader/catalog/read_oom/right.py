"""Right answers to read_oom, spelled in many ways."""

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


def normalize(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def edge_bias(pairs, w):
    edges = jax.nn.silu(pairs * w["scale"] + w["shift"])
    return jnp.einsum("bijc,ca->baij", edges, w["bias"])


def attention(q, k, v, bias):
    scores = jnp.einsum("bqae,bkae->baqk", q, k) / q.shape[-1] ** 0.5 + bias
    return jnp.einsum("baqk,bkae->bqae", jax.nn.softmax(scores), v)


def layer(x, w, pairs, edge_bias=edge_bias):
    h = normalize(x)
    q, k, v = (jnp.einsum("bnd,dae->bnae", h, w[name]) for name in ("query", "key", "value"))
    x = x + jnp.einsum("bnae,aed->bnd", attention(q, k, v, edge_bias(pairs, w)), w["out"])
    return x + jax.nn.silu(normalize(x) @ w["up"]) @ w["down"]


def loss(params, x, pairs, targets, **changed):
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w, pairs, **changed), None), x, params)
    return jnp.mean((x - targets) ** 2)


@passes
def inside_a_scan_without_a_barrier(params, x, pairs, targets):
    return loss(params, x, pairs, targets, edge_bias=jax.checkpoint(edge_bias, prevent_cse=False))


@passes
def layers_in_a_python_loop(params, x, pairs, targets):
    for number in range(len(params["up"])):
        w = jax.tree.map(lambda stacked, number=number: stacked[number], params)
        x = layer(x, w, pairs, edge_bias=jax.checkpoint(edge_bias))
    return jnp.mean((x - targets) ** 2)


@passes
def gradient_rule_of_ones_own(params, x, pairs, targets):
    @jax.custom_vjp
    def bias(pairs, w):
        return edge_bias(pairs, w)

    def backward(saved, ct):
        return jax.vjp(edge_bias, *saved)[1](ct)

    bias.defvjp(lambda pairs, w: (edge_bias(pairs, w), (pairs, w)), backward)
    return loss(params, x, pairs, targets, edge_bias=bias)


@passes
def names_for_all_that_is_saved(params, x, pairs, targets):
    def named_layer(x, w):
        h = normalize(x)
        q, k, v = (checkpoint_name(jnp.einsum("bnd,dae->bnae", h, w[name]), name) for name in ("query", "key", "value"))
        scores = jnp.einsum("bqae,bkae->baqk", q, k) / q.shape[-1] ** 0.5 + edge_bias(pairs, w)
        weights = checkpoint_name(jax.nn.softmax(checkpoint_name(scores, "scores")), "weights")
        context = checkpoint_name(jnp.einsum("baqk,bkae->bqae", weights, v), "context")
        x = checkpoint_name(x + jnp.einsum("bnae,aed->bnd", context, w["out"]), "stream")
        up = checkpoint_name(normalize(x) @ w["up"], "up")
        return x + jax.nn.silu(up) @ w["down"], None

    names = "query", "key", "value", "scores", "weights", "context", "stream", "up"
    body = jax.checkpoint(named_layer, policy=policies.save_only_these_names(*names))
    return jnp.mean((jax.lax.scan(body, x, params)[0] - targets) ** 2)


@passes
def biases_of_all_layers_first(params, x, pairs, targets):
    """The biases are as small as the attention weights, and `jax.lax.map` computes them layer by layer."""
    biases = jax.lax.map(lambda w: jax.checkpoint(edge_bias)(pairs, w), params)
    body = lambda x, one: (layer(x, one[0], pairs, lambda *_: one[1]), None)  # noqa: E731
    return jnp.mean((jax.lax.scan(body, x, (params, biases))[0] - targets) ** 2)


@passes
def nnx_remat(params, x, pairs, targets):
    return loss(params, x, pairs, targets, edge_bias=nnx.remat(edge_bias))


@passes
def equinox_checkpoint(params, x, pairs, targets):
    return loss(params, x, pairs, targets, edge_bias=eqx.filter_checkpoint(edge_bias))


@passes
def one_head_after_the_other(params, x, pairs, targets):
    """Each head has a checkpoint, and the edges of one head at a time."""

    def bias(pairs, w):
        @jax.checkpoint
        def of_head(column):
            edges = jax.nn.silu(pairs * w["scale"] + w["shift"])
            return jnp.einsum("bijc,c->bij", edges, column)

        return jnp.stack([of_head(column) for column in w["bias"].T], axis=1)

    return loss(params, x, pairs, targets, edge_bias=bias)

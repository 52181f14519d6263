"""Right answers to repaired_loss, spelled in many ways."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies


def rms_norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def rotate(x):
    angles = jnp.arange(len(x))[:, None, None] * 1e4 ** (-jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * jnp.cos(angles) - second * jnp.sin(angles), first * jnp.sin(angles) + second * jnp.cos(angles)], -1
    )


def attention(weights, x):
    query, key, value = (jnp.einsum("nd,dah->nah", x, weights[which]) for which in ("query", "key", "value"))
    scores = jnp.einsum("qah,kah->aqk", rotate(query), rotate(key)) / query.shape[-1] ** 0.5
    scores = checkpoint_name(jnp.where(jnp.tri(len(x), dtype=bool), scores, -1e9), "scores")
    context = checkpoint_name(jnp.einsum("aqk,kah->qah", jax.nn.softmax(scores), value), "context")
    return jnp.einsum("qah,ahd->qd", context, weights["out"]), scores


def layer(weights, x):
    attended, scores = attention(weights, rms_norm(x))
    x = x + attended
    normed = rms_norm(x)
    return x + (jax.nn.silu(normed @ weights["gate"]) * (normed @ weights["up"])) @ weights["down"], scores


def z_loss(scores):
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) ** 2)


def body(x, weights, layer=layer, z_loss=z_loss):
    x, scores = layer(weights, x)
    return x, z_loss(scores)


def loss(params, x, targets, body=body):
    x, penalties = jax.lax.scan(body, x, params)
    return jnp.mean((x - targets) ** 2) + 0.1 * jnp.mean(penalties)


@passes
def checkpoint_with_a_policy_for_a_name_of_no_value(params, x, targets):
    return loss(params, x, targets, jax.checkpoint(body, policy=policies.save_only_these_names("nothing")))


@passes
def layer_that_returns_its_penalty(params, x, targets):
    @jax.checkpoint
    def with_penalty(weights, x):
        x, scores = layer(weights, x)
        return x, z_loss(scores)

    return loss(params, x, targets, lambda x, weights: with_penalty(weights, x))


@passes
def penalties_in_the_carry(params, x, targets):
    @jax.checkpoint
    def step(carry, weights):
        x, total = carry
        x, penalty = body(x, weights)
        return (x, total + penalty), None

    (x, total), _ = jax.lax.scan(step, (x, 0.0), params)
    return jnp.mean(jnp.square(targets - x)) + 0.1 * total / len(params["up"])


@passes
def input_named_and_saved(params, x, targets):
    def named(x, weights):
        return body(checkpoint_name(x, "input"), weights)

    return loss(params, x, targets, jax.checkpoint(named, policy=policies.save_only_these_names("input")))


@passes
def logsumexp_spelled_out(params, x, targets):
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def step(x, weights):
        x, scores = layer(weights, x)
        return x, jnp.mean(jnp.log(jnp.sum(jnp.exp(scores), axis=-1)) ** 2)

    x, penalties = jax.lax.scan(lambda x, weights: step(x, weights), x, params)
    error = x - targets
    return jnp.sum(error * error) / error.size + jnp.sum(penalties) / len(penalties) * 0.1


@passes
def nnx_remat(params, x, targets):
    return loss(params, x, targets, nnx.remat(lambda x, weights: body(x, weights)))


@passes
def scan_by_index(params, x, targets):
    """The weights are closed over, and the body takes its layer by number."""

    @jax.checkpoint
    def step(x, number):
        return body(x, jax.tree.map(lambda stacked: stacked[number], params))

    x, penalties = jax.lax.scan(step, x, jnp.arange(len(params["up"])))
    return jnp.mean((x - targets) ** 2) + 0.1 * jnp.mean(penalties)

"""Wrong answers to repaired_loss, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
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


class Layer:
    def __call__(self, weights, x):
        return layer(weights, x)


@fails_with("also saved", "extra residuals", hint="whole_layer_saved")
def unmodified(params, x, targets):
    module = Layer()
    module.__call__ = jax.checkpoint(module.__call__)
    return loss(params, x, targets, functools.partial(body, layer=module))


@fails_with(
    "also saved",
    "the exponentials of the layers' scores",
    "which line outside the checkpoint uses the value",
    hint="scores_leave_the_checkpoint",
)
def layer_in_a_checkpoint_without_its_penalty(params, x, targets):
    return loss(params, x, targets, functools.partial(body, layer=jax.checkpoint(layer)))


@fails_with("also saved", "the layers' contexts", hint="values_leave_the_checkpoint")
def context_saved(params, x, targets):
    return loss(params, x, targets, jax.checkpoint(body, policy=policies.save_only_these_names("context")))


@fails_with("not saved", "the layers' inputs", "one layer, or the whole scan", hint="one_checkpoint_per_layer")
def checkpoint_around_the_loss(params, x, targets):
    return jax.checkpoint(loss)(params, x, targets)


@fails_with(
    "recomputes", "one of your checkpoints inside another", hint="recomputed_twice", beyond="Recomputes.count", steps=8
)
def a_matmul_twice(params, x, targets):
    def step(x, weights):
        y, penalty = body(x, weights)
        y = also_run_backward(lambda x, w: x @ w, y, x, weights["up"])
        return also_run_backward(lambda x, w: x @ w, y, x, weights["down"].T), penalty

    return loss(params, x, targets, jax.checkpoint(step))


@fails_with("wrong value", "the z-loss of the attention scores is missing", hint="value_of_the_loss")
def penalty_removed(params, x, targets):
    return loss(params, x, targets, jax.checkpoint(functools.partial(body, z_loss=lambda scores: 0.0)))


@fails_with("wrong value", "has the weight 1 instead of 0.1", hint="value_of_the_loss")
def penalty_without_its_weight(params, x, targets):
    return loss(params, x, targets, jax.checkpoint(functools.partial(body, z_loss=lambda scores: 10 * z_loss(scores))))


@fails_with("wrong value", "the sum of the layers' z-losses", hint="value_of_the_loss")
def penalties_summed(params, x, targets):
    x, penalties = jax.lax.scan(jax.checkpoint(body), x, params)
    return jnp.mean((x - targets) ** 2) + 0.1 * jnp.sum(penalties)


@fails_with("wrong gradient", "the z-loss contributes nothing", hint="value_of_the_loss")
def scores_stopped(params, x, targets):
    stopped = lambda scores: z_loss(jax.lax.stop_gradient(scores))  # noqa: E731
    return loss(params, x, targets, jax.checkpoint(functools.partial(body, z_loss=stopped)))


@fails_with("wrong value", hint="value_of_the_loss")
def mask_left_out(params, x, targets):
    def unmasked(scores):
        return jnp.mean(jax.nn.logsumexp(jnp.maximum(scores, 0), axis=-1) ** 2)

    return loss(params, x, targets, jax.checkpoint(functools.partial(body, z_loss=unmasked)))


@fails_with("raises", "Which two values does the body of the scan return", hint="value_of_the_loss")
def outputs_of_the_body_swapped(params, x, targets):
    return loss(params, x, targets, jax.checkpoint(lambda x, weights: body(x, weights)[::-1]))


class Block(Layer):
    __call__ = jax.checkpoint(Layer.__call__)


@fails_with("raises", "Which arguments of the checkpointed function are arrays", hint="module_is_an_argument")
def method_wrapped_in_a_subclass(params, x, targets):
    return loss(params, x, targets, functools.partial(body, layer=Block()))


@fails_with("raises", "What slice of the stacked arrays does one layer get", hint="value_of_the_loss")
def all_weights_for_one_layer(params, x, targets):
    return loss(params, x, targets, jax.checkpoint(lambda x, weights: body(x, params)))

"""Wrong answers to read_oom, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies


def normalize(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def edges_of(pairs, w):
    return jax.nn.silu(pairs * w["scale"] + w["shift"])


def plain_bias(pairs, w):
    return jnp.einsum("bijc,ca->baij", edges_of(pairs, w), w["bias"])


def attention(q, k, v, bias):
    scores = jnp.einsum("bqae,bkae->baqk", q, k) / q.shape[-1] ** 0.5 + bias
    return jnp.einsum("baqk,bkae->bqae", jax.nn.softmax(scores), v)


def layer(x, w, pairs, edge_bias=plain_bias, attention=attention, first=normalize):
    h = first(x)
    q, k, v = (jnp.einsum("bnd,dae->bnae", h, w[name]) for name in ("query", "key", "value"))
    x = x + jnp.einsum("bnae,aed->bnd", attention(q, k, v, edge_bias(pairs, w)), w["out"])
    return x + jax.nn.silu(normalize(x) @ w["up"]) @ w["down"]


def loss(params, x, pairs, targets, layer=layer, **changed):
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w, pairs, **changed), None), x, params)
    return jnp.mean((x - targets) ** 2)


remat_bias = jax.checkpoint(plain_bias)


def right(*arguments, **changed):
    return loss(*arguments, **({"edge_bias": remat_bias} | changed))


@fails_with(
    "also saved",
    "the scaled pairs of all layers",
    "the edges of all layers",
    "Which line of the model",
    hint="large_arrays_still_saved",
)
def unchanged(params, x, pairs, targets):
    return loss(params, x, pairs, targets)


@fails_with(
    "also saved",
    "the edges of all layers",
    "outside your checkpoint",
    hint="large_arrays_still_saved",
    beyond="SavesAtMost.extra_parts",
)
def checkpoint_around_the_edges(params, x, pairs, targets):
    def bias(pairs, w):
        return jnp.einsum("bijc,ca->baij", jax.checkpoint(edges_of)(pairs, w), w["bias"])

    return loss(params, x, pairs, targets, edge_bias=bias)


@fails_with("also saved", "Which line of the model", hint="large_arrays_still_saved")
def three_layers_unchanged(params, x, pairs, targets):
    return (loss if len(params["up"]) == 3 else right)(params, x, pairs, targets)


def with_biases(params, x, pairs, targets, biases):
    body = lambda x, one: (layer(x, one[0], pairs, lambda *_: one[1]), None)  # noqa: E731
    return jnp.mean((jax.lax.scan(body, x, (params, biases))[0] - targets) ** 2)


@fails_with("peak", "layers at once", hint="all_layers_at_once", beyond="InPieces.rows", steps=2)
def edges_of_all_layers_stacked(params, x, pairs, targets):
    @jax.checkpoint
    def bias(pairs, params):
        weights = zip(params["scale"], params["shift"], strict=True)
        edges = jnp.stack([edges_of(pairs, {"scale": scale, "shift": shift}) for scale, shift in weights])
        return jnp.einsum("lbijc,lca->lbaij", edges, params["bias"])

    return with_biases(params, x, pairs, targets, bias(pairs, params))


@fails_with(
    "not saved",
    "the attention weights of all layers",
    "Does one of your checkpoints or policies drop them?",
    hint="attention_weights_recomputed",
)
def matmuls_saved_by_a_policy(params, x, pairs, targets):
    return loss(params, x, pairs, targets, layer=jax.checkpoint(layer, policy=policies.dots_saveable))


@fails_with("recomputes", "Which matmul is inside your checkpoint", hint="matmul_recomputed", beyond="Recomputes.count")
def one_matmul_more(params, x, pairs, targets):
    x = also_run_backward(lambda x: x[0] @ x[0].T, x, x)
    return right(params, x, pairs, targets)


@fails_with(
    "wrong value", "the scores have no bias", "Which function of the model uses `pairs`", hint="compare_with_the_model"
)
def bias_left_out(params, x, pairs, targets):
    return right(params, x, pairs, targets, edge_bias=lambda pairs, w: 0)


@fails_with("wrong value", "the edges have no activation", hint="compare_with_the_model")
def activation_left_out(params, x, pairs, targets):
    def bias(pairs, w):
        return jnp.einsum("bijc,ca->baij", pairs * w["scale"] + w["shift"], w["bias"])

    return right(params, x, pairs, targets, edge_bias=jax.checkpoint(bias))


@fails_with("wrong value", "the two token axes of the edges are swapped", hint="compare_with_the_model")
def axes_swapped(params, x, pairs, targets):
    def bias(pairs, w):
        return jnp.einsum("bijc,ca->baji", edges_of(pairs, w), w["bias"])

    return right(params, x, pairs, targets, edge_bias=jax.checkpoint(bias))


@fails_with("wrong value", "not normalized before attention", hint="compare_with_the_model")
def normalization_left_out(params, x, pairs, targets):
    return right(params, x, pairs, targets, first=lambda x: x)


@fails_with("wrong value", hint="compare_with_the_model")
def sum_in_place_of_mean(params, x, pairs, targets):
    return right(params, x, pairs, targets) * x.size


@fails_with("wrong gradient", "zero everywhere", hint="compare_with_the_model")
def edges_without_gradient(params, x, pairs, targets):
    def bias(pairs, w):
        return jax.lax.stop_gradient(plain_bias(pairs, w))

    return loss(params, x, pairs, targets, edge_bias=bias)


@fails_with("raises", "What does the scan pass to its body", hint="compare_with_the_model")
def another_weights_name(params, x, pairs, targets):
    return right(params | {"edge": params["bias"]}, x, pairs, targets, edge_bias=lambda pairs, w: w["edges"])


@fails_with("raises", "Does the carry keep its shape", hint="compare_with_the_model")
def carry_of_two(params, x, pairs, targets):
    return jax.lax.scan(lambda x, w: ((layer(x, w, pairs, remat_bias), pairs), None), x, params)[0][0].mean()


@fails_with("raises", "What axes does each array on that line have?", hint="compare_with_the_model")
def axes_in_another_order(params, x, pairs, targets):
    def bias(pairs, w):
        return jnp.einsum("bcij,ca->baij", edges_of(pairs, w), w["bias"])

    return right(params, x, pairs, targets, edge_bias=jax.checkpoint(bias))


@fails_with("wrong type", hint="compare_with_the_model")
def one_error_per_sequence(params, x, pairs, targets):
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w, pairs, remat_bias), None), x, params)
    return jnp.mean((x - targets) ** 2, axis=(1, 2))

"""Wrong answers to attention_block, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies


def attend(q, k, v):
    scores = checkpoint_name(jnp.einsum("qad,kad->aqk", q, k) * q.shape[-1] ** -0.5, "scores")
    return jnp.einsum("aqk,kad->qad", checkpoint_name(jax.nn.softmax(scores), "weights"), v)


def block(wq, wk, wv, wo, x, attend=attend):
    q, k, v = (
        checkpoint_name(jnp.einsum("sh,had->sad", x, w), name) for name, w in zip("qkv", (wq, wk, wv), strict=True)
    )
    context = checkpoint_name(attend(q, k, v), "context")
    return x + checkpoint_name(jnp.einsum("sad,adh->sh", context, wo), "out")


def saving(names, block=block):
    return jax.checkpoint(block, policy=policies.save_only_these_names(*names))


def named(answer):
    """Give an answer of any arguments the page's parameters."""

    @functools.wraps(answer)
    def with_parameters(wq, wk, wv, wo, x):
        return answer(wq, wk, wv, wo, x)

    del with_parameters.__wrapped__
    return with_parameters


QKV, CONTEXT = ("q", "k", "v"), ("context",)


def right(*arguments, block=block):
    s, h = arguments[-1].shape
    return saving(CONTEXT if s > 3 * h else QKV, block)(*arguments)


@fails_with("also saved", "context, f32[", "Which function marks", hint="no_checkpoint")
@named
def no_checkpoint(*arguments):
    return block(*arguments)


@fails_with("not saved", "how many FLOPs", hint="saved_too_little")
@named
def nothing_saved(*arguments):
    return jax.checkpoint(block)(*arguments)


@fails_with("also saved", "context, f", "allow each value that you save", hint="all_four_saved")
@named
def all_four_saved(*arguments):
    return saving((*QKV, *CONTEXT))(*arguments)


@fails_with("also saved", "context, f", "does not save q, f", hint="compare_with_the_shape")
@named
def by_flops_per_byte(*arguments):
    s, h = arguments[-1].shape
    return saving(CONTEXT if s > h else QKV)(*arguments)


@fails_with("also saved", "does not save context", hint="compare_with_the_shape")
@named
def one_matmul_of_four_counted_twice(*arguments):
    s, h = arguments[-1].shape
    return saving(CONTEXT if s > 6 * h else QKV)(*arguments)


@fails_with("also saved", "the scores, f", hint="weights_saved")
@named
def the_scores_too(*arguments):
    s, h = arguments[-1].shape
    return saving((*(CONTEXT if s > 3 * h else QKV), "scores"))(*arguments)


def with_attention(attend):
    def other(*arguments):
        return block(*arguments, attend=attend)

    return other


@fails_with("wrong value", "not divided by the square root of the head size", hint="compare_with_the_block")
@named
def scores_not_divided(*arguments):
    def unscaled(q, k, v):
        return attend(q * q.shape[-1] ** 0.5, k, v)

    return right(*arguments, block=with_attention(unscaled))


@fails_with("wrong value", "square root of the width", hint="compare_with_the_block")
@named
def divided_by_the_width(*arguments):
    def scaled(q, k, v):
        return attend(q * q.shape[1] ** -0.5, k, v)

    return right(*arguments, block=with_attention(scaled))


@fails_with("wrong value", "over the queries", hint="compare_with_the_block")
@named
def softmax_over_the_queries(*arguments):
    def other(q, k, v):
        scores = jnp.einsum("qad,kad->aqk", q, k) * q.shape[-1] ** -0.5
        return jnp.einsum("aqk,kad->qad", jax.nn.softmax(scores, axis=1), v)

    return right(*arguments, block=with_attention(other))


@fails_with("wrong value", "causal", hint="compare_with_the_block")
@named
def causal_attention(*arguments):
    def causal(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    return right(*arguments, block=with_attention(causal))


@fails_with("wrong value", "leaves out `x`", hint="compare_with_the_block")
@named
def no_residual_connection(*arguments):
    return right(*arguments, block=lambda *given: block(*given) - given[-1])


@fails_with("wrong gradient", "zero everywhere", hint="compare_with_the_block")
@named
def x_stopped(*arguments):
    *weights, x = arguments
    return right(*weights, jax.lax.stop_gradient(x))


@fails_with("argument order", hint="compare_with_the_block")
def x_first(x, wq, wk, wv, wo):
    return right(wq, wk, wv, wo, x)


@fails_with("raises", "takes the value first", hint="compare_with_the_block")
@named
def name_first(*arguments):
    def swapped(wq, wk, wv, wo, x):
        return block(wq, wk, wv, wo, checkpoint_name("x", x))

    return right(*arguments, block=swapped)


@fails_with("raises", "plain Python integers", hint="compare_with_the_block")
@named
def by_the_values(*arguments):
    return saving(CONTEXT if jnp.sum(arguments[-1]) > 0 else QKV)(*arguments)


@fails_with("raises", "does each `einsum` sum", hint="compare_with_the_block")
@named
def projections_transposed(*arguments):
    wq, wk, wv, wo, x = arguments
    return right(wq.T, wk, wv, wo, x)


@fails_with("recomputes", "Count each matmul once", hint="recomputed_more", beyond="Recomputes.count", steps=2)
@named
def projections_once_more(*arguments):
    wq, wk, wv, wo, x = arguments
    x = also_run_backward(lambda x, *ws: sum(jnp.einsum("sh,had->sad", x, w) for w in ws), x, x, wq, wk)
    return right(wq, wk, wv, wo, x)

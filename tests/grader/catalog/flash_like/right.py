"""Right answers to flash_like, spelled in many ways."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
by_name = jax.checkpoint_policies.save_only_these_names("out", "lse")


def attend(q, k, v):
    scores = jnp.einsum("nd,md->nm", q, k) / jnp.sqrt(q.shape[-1])
    lse = jax.nn.logsumexp(scores, axis=-1)
    return jnp.einsum("nm,me->ne", jax.nn.softmax(scores), v), lse


def gradients(q, k, v, lse, delta, ct):
    scale = q.shape[-1] ** -0.5
    p = jnp.exp(q @ k.T * scale - lse[:, None])
    dp = ct @ v.T
    dscores = p * (dp - (jnp.sum(p * dp, -1, keepdims=True) if delta is None else delta[:, None]))
    return scale * dscores @ k, scale * dscores.T @ q, p.T @ ct


@passes
def rule_in_the_function(q, k, v):
    @jax.custom_vjp
    def flash(q, k, v):
        return attend(q, k, v)[0]

    def forward(q, k, v):
        out, lse = map(checkpoint_name, attend(q, k, v), ("out", "lse"))
        return out, (q, k, v, out, lse)

    def backward(kept, ct):
        q, k, v, out, lse = kept
        return gradients(q, k, v, lse, jnp.einsum("ne,ne->n", ct, out), ct)

    flash.defvjp(forward, backward)
    return flash(q, k, v)


@passes
def rule_without_out(q, k, v):
    """Its delta is computed from dp, so out is saved for the layer alone."""

    @jax.custom_vjp
    def flash(q, k, v):
        return attend(q, k, v)[0]

    def forward(q, k, v):
        out, lse = attend(q, k, v)
        return checkpoint_name(out, "out"), (q, k, v, checkpoint_name(lse, "lse"))

    flash.defvjp(forward, lambda kept, ct: gradients(*kept, None, ct))
    return flash(q, k, v)


@passes
@functools.partial(jax.checkpoint, policy=by_name)
def checkpoint_inside(q, k, v):
    """No rule: what it subtracts is constant, and what it divides by is 1."""
    scores = q @ k.T / q.shape[-1] ** 0.5
    lse = checkpoint_name(jax.lax.stop_gradient(jax.nn.logsumexp(scores, -1)), "lse")
    powers = jnp.exp(scores - lse[:, None])
    return checkpoint_name((powers / powers.sum(-1, keepdims=True)) @ v, "out")


@passes
def blocks_of_keys(q, k, v):
    """Like kernels, compute the scores of at most 4 keys at a time."""

    def cut(x):
        return x.reshape(-1, 4, x.shape[-1])

    @jax.custom_vjp
    def flash(q, k, v):
        return forward(q, k, v)[0]

    def forward(q, k, v):
        def block(state, own):
            biggest, total, out = state
            scores = q @ own[0].T / q.shape[-1] ** 0.5
            new = jnp.maximum(biggest, scores.max(-1))
            weights, old = jnp.exp(scores - new[:, None]), jnp.exp(biggest - new)
            return (new, total * old + weights.sum(-1), out * old[:, None] + weights @ own[1]), None

        start = jnp.full(len(q), -jnp.inf), jnp.zeros(len(q)), jnp.zeros((len(q), v.shape[-1]))
        (biggest, total, out), _ = jax.lax.scan(block, start, (cut(k), cut(v)))
        out = checkpoint_name(out / total[:, None], "out")
        lse = checkpoint_name(biggest + jnp.log(total), "lse")
        return out, (q, k, v, out, lse)

    def backward(kept, ct):
        q, k, v, out, lse = kept
        delta = jnp.sum(ct * out, -1)

        def block(dq, own):
            of_q, *of_own = gradients(q, *own, lse, delta, ct)
            return dq + of_q, of_own

        dq, (dk, dv) = jax.lax.scan(block, jnp.zeros_like(q), (cut(k), cut(v)))
        return dq, dk.reshape(k.shape), dv.reshape(v.shape)

    flash.defvjp(forward, backward)
    return flash(q, k, v)


@passes
def equinox_rule(q, k, v):
    @eqx.filter_custom_vjp
    def flash(qkv):
        return attend(*qkv)[0]

    @flash.def_fwd
    def forward(perturbed, qkv):
        out, lse = attend(*qkv)
        out, lse = checkpoint_name(out, "out"), checkpoint_name(lse, "lse")
        return out, (out, lse)

    @flash.def_bwd
    def backward(kept, ct, perturbed, qkv):
        out, lse = kept
        return gradients(*qkv, lse, jnp.sum(ct * out, -1), ct)

    return flash((q, k, v))


@passes
def einsum_throughout(q, k, v):
    @jax.custom_vjp
    def flash(q, k, v):
        return attend(q, k, v)[0]

    def forward(q, k, v):
        out, lse = attend(q, k, v)
        out, lse = jax.tree.map(checkpoint_name, (out, lse), ("out", "lse"))
        return out, (q, k, v, out, lse)

    def backward(kept, ct):
        q, k, v, out, lse = kept
        p = jnp.exp(jnp.einsum("nd,md->nm", q, k) / q.shape[-1] ** 0.5 - lse[:, None])
        dscores = p * (jnp.einsum("ne,me->nm", ct, v) - jax.vmap(jnp.vdot)(ct, out)[:, None])
        dscores /= q.shape[-1] ** 0.5
        return (
            jnp.einsum("nm,md->nd", dscores, k),
            jnp.einsum("nm,nd->md", dscores, q),
            jnp.einsum("nm,ne->me", p, ct),
        )

    flash.defvjp(forward, backward)
    return flash(q, k, v)


@passes
def names_in_a_checkpoint_of_its_own(q, k, v):
    """No custom rule: the checkpoint saves the named values only, and the scores follow from the arguments."""

    def attention(q, k, v):
        scores = q @ k.T / q.shape[-1] ** 0.5
        lse = checkpoint_name(jax.nn.logsumexp(scores, axis=-1), "lse")
        return checkpoint_name(jnp.exp(scores - lse[:, None]) @ v, "out")

    return jax.checkpoint(attention, policy=by_name)(q, k, v)

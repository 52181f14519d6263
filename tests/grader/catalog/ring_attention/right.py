"""Right answers to ring_attention, spelled in many ways."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def shifted(a, by=1):
    p = jax.lax.axis_size("devices")
    return jax.lax.ppermute(a, "devices", [(i, (i + by) % p) for i in range(p)])


def block(q, k, v):
    n = len(k) * jax.lax.axis_size("devices")
    return jax.nn.sigmoid(q @ k.T / q.shape[-1] ** 0.5 - jnp.log(n)) @ v


def zeros(q, v):
    return jnp.zeros_like(q[:, :1] * v[:1])


def ring(q, k, v):
    def step(carry, _):
        k, v, out = carry
        return (shifted(k), shifted(v), out + block(q, k, v)), None

    return jax.lax.scan(step, (k, v, zeros(q, v)), length=jax.lax.axis_size("devices"))[0][2]


def with_rule(forward, backward):
    """Return attention that saves its arguments, given its two passes."""
    attention = jax.custom_vjp(forward)
    attention.defvjp(lambda *arguments: (forward(*arguments), arguments), lambda saved, ct: backward(*saved, ct))
    return attention


def ring_backward(q, k, v, ct):
    def step(carry, _):
        k, v, dq, dk, dv = carry
        of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
        return (shifted(k), shifted(v), dq + of_q, shifted(dk + of_k), shifted(dv + of_v)), None

    start = k, v, *map(jnp.zeros_like, (q, k, v))
    return jax.lax.scan(step, start, length=jax.lax.axis_size("devices"))[0][2:]


@passes
def to_the_left(q, k, v):
    left = functools.partial(shifted, by=-1)

    def forward(q, k, v):
        def step(carry, _):
            k, v, out = carry
            return (left(k), left(v), out + block(q, k, v)), None

        return jax.lax.scan(step, (k, v, zeros(q, v)), None, jax.lax.psum(1, "devices"))[0][2]

    def backward(q, k, v, ct):
        def step(carry, _):
            dq, *blocks = carry
            of_q, of_k, of_v = jax.vjp(block, q, *blocks[:2])[1](ct)
            return (dq + of_q, *map(left, (*blocks[:2], blocks[2] + of_k, blocks[3] + of_v))), None

        start = jnp.zeros_like(q), k, v, jnp.zeros_like(k), jnp.zeros_like(v)
        (dq, _, _, dk, dv), _ = jax.lax.scan(step, start, None, jax.lax.psum(1, "devices"))
        return dq, dk, dv

    return with_rule(forward, backward)(q, k, v)


@passes
def derivatives_by_hand_and_the_last_step_after_the_loop(q, k, v):
    """The blocks move p - 1 times, and their gradients p times."""
    scale = q.shape[-1] ** -0.5
    p = jax.lax.axis_size("devices")

    def weights(q, k):
        return jax.nn.sigmoid(q @ k.T * scale - jnp.log(p * len(k)))

    def forward(q, k, v):
        def step(i, carry):
            k, v, out = carry
            return shifted(k), shifted(v), out + weights(q, k) @ v

        k, v, out = jax.lax.fori_loop(0, p - 1, step, (k, v, zeros(q, v)))
        return out + weights(q, k) @ v

    def gradients(q, k, v, ct):
        w = weights(q, k)
        of_scores = scale * w * (1 - w) * (ct @ v.T)
        return of_scores @ k, of_scores.T @ q, w.T @ ct

    def backward(q, k, v, ct):
        def step(i, carry):
            k, v, dq, dk, dv = carry
            of_q, of_k, of_v = gradients(q, k, v, ct)
            return shifted(k), shifted(v), dq + of_q, shifted(dk + of_k), shifted(dv + of_v)

        start = k, v, *map(jnp.zeros_like, (q, k, v))
        k, v, dq, dk, dv = jax.lax.fori_loop(0, p - 1, step, start)
        of_q, of_k, of_v = gradients(q, k, v, ct)
        return dq + of_q, shifted(dk + of_k), shifted(dv + of_v)

    return with_rule(forward, backward)(q, k, v)


@passes
def own_block_before_the_loop(q, k, v):
    p = jax.lax.axis_size("devices")

    def forward(q, k, v):
        def step(carry, _):
            k, v, out = carry
            k, v = shifted(k), shifted(v)
            return (k, v, out + block(q, k, v)), None

        return jax.lax.scan(step, (k, v, block(q, k, v)), None, p - 1)[0][2]

    def backward(q, k, v, ct):
        def step(carry, _):
            k, v, dq, dk, dv = carry
            k, v, dk, dv = map(shifted, (k, v, dk, dv))
            of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
            return (k, v, dq + of_q, dk + of_k, dv + of_v), None

        (_, _, dq, dk, dv), _ = jax.lax.scan(step, (k, v, *jax.vjp(block, q, k, v)[1](ct)), None, p - 1)
        return dq, shifted(dk), shifted(dv)

    return with_rule(forward, backward)(q, k, v)


@passes
def one_array_travels(q, k, v):
    """Keys and values in one array, as their gradients."""
    d = k.shape[1]
    p = jax.lax.axis_size("devices")

    def of_both(q, both):
        return block(q, both[:, :d], both[:, d:])

    def forward(q, both):
        def step(carry, _):
            both, out = carry
            return (shifted(both), out + of_both(q, both)), None

        return jax.lax.scan(step, (both, zeros(q, both[:, d:])), length=p)[0][1]

    def backward(q, both, ct):
        def step(carry, _):
            both, dq, of_blocks = carry
            of_q, of_both_ = jax.vjp(of_both, q, both)[1](ct)
            return (shifted(both), dq + of_q, shifted(of_blocks + of_both_)), None

        start = both, jnp.zeros_like(q), jnp.zeros_like(both)
        return jax.lax.scan(step, start, length=p)[0][1:]

    attention = jax.custom_vjp(lambda q, k, v: forward(q, jnp.concatenate([k, v], axis=1)))

    def rule(saved, ct):
        q, k, v = saved
        dq, of_both_ = backward(q, jnp.concatenate([k, v], axis=1), ct)
        return dq, of_both_[:, :d], of_both_[:, d:]

    attention.defvjp(lambda *arguments: (attention(*arguments), arguments), rule)
    return attention(q, k, v)


@passes
def queries_travel(q, k, v):
    """The queries move, with their results in the forward pass, and with the results' gradients and their own in the
    backward pass. Keys, values and their gradients stay."""
    p = jax.lax.axis_size("devices")

    def forward(q, k, v):
        def step(carry, _):
            q, out = carry
            return (shifted(q), shifted(out + block(q, k, v))), None

        return jax.lax.scan(step, (q, zeros(q, v)), length=p)[0][1]

    def backward(q, k, v, ct):
        def step(carry, _):
            q, ct, dq, dk, dv = carry
            of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
            return (shifted(q), shifted(ct), shifted(dq + of_q), dk + of_k, dv + of_v), None

        return jax.lax.scan(step, (q, ct, *map(jnp.zeros_like, (q, k, v))), length=p)[0][2:]

    return with_rule(forward, backward)(q, k, v)


@passes
def backward_ring_the_other_way(q, k, v):
    """The backward pass undoes the moves of the forward pass, which ends with each block at home."""

    def backward(q, k, v, ct):
        def step(carry, _):
            k, v, dq, dk, dv = carry
            k, v, dk, dv = (shifted(a, -1) for a in (k, v, dk, dv))
            of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
            return (k, v, dq + of_q, dk + of_k, dv + of_v), None

        start = k, v, *map(jnp.zeros_like, (q, k, v))
        return jax.lax.scan(step, start, length=jax.lax.axis_size("devices"))[0][2:]

    return with_rule(ring, backward)(q, k, v)


@passes
def both_directions(q, k, v):
    """Half of the blocks arrive from the left and half from the right."""
    p = jax.lax.axis_size("devices")

    def from_both_sides(q, k, v, ways):
        def step(carry, _):
            out, *blocks = carry
            blocks = [tuple(shifted(a, way) for a in own) for own, way in zip(blocks, ways, strict=True)]
            return (out + sum(block(q, *own) for own in blocks), *blocks), None

        return step

    def forward(q, k, v):
        start = block(q, k, v), (k, v), (k, v)
        (out, (k, v), _), _ = jax.lax.scan(from_both_sides(q, k, v, (1, -1)), start, length=(p - 1) // 2)
        return out + block(q, shifted(k), shifted(v))  # the number of devices is even

    def backward(q, k, v, ct):
        def step(carry, _):
            dq, *rings = carry
            moved = []
            for way, ring in zip((1, -1), rings, strict=True):
                k, v, dk, dv = (shifted(a, way) for a in ring)
                of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
                dq += of_q
                moved.append((k, v, dk + of_k, dv + of_v))
            return (dq, *moved), None

        dq, dk, dv = jax.vjp(block, q, k, v)[1](ct)
        start = dq, (k, v, dk, dv), (k, v, jnp.zeros_like(k), jnp.zeros_like(v))
        turns = (p - 1) // 2
        (dq, right, (_, _, *left)), _ = jax.lax.scan(step, start, length=turns)
        k, v, dk, dv = map(shifted, right)
        of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
        dk, dv = (shifted(a, -turns - 1) for a in (dk + of_k, dv + of_v))
        return dq + of_q, *(a + shifted(b, turns) for a, b in zip((dk, dv), left, strict=True))

    return with_rule(forward, backward)(q, k, v)


@passes
def rule_within_a_checkpoint(q, k, v):
    """The checkpoint saves its arguments, as the rule does, and runs nothing again."""

    def backward(q, k, v, ct):
        def step(carry, _):
            k, v, dq, dk, dv = carry
            _, pull = jax.vjp(jax.checkpoint(block), q, k, v)
            of_q, of_k, of_v = pull(ct)
            return (shifted(k), shifted(v), dq + of_q, shifted(dk + of_k), shifted(dv + of_v)), None

        start = k, v, *map(jnp.zeros_like, (q, k, v))
        return jax.lax.scan(step, start, length=jax.lax.axis_size("devices"))[0][2:]

    named = with_rule(lambda q, k, v: checkpoint_name(ring(q, k, v), "out"), backward)
    return jax.checkpoint(named, policy=jax.checkpoint_policies.nothing_saveable)(q, k, v)


@passes
def linen_custom_vjp(q, k, v):
    class Attention(nn.Module):
        @nn.compact
        def __call__(self, q, k, v):
            return with_rule(ring, ring_backward)(q, k, v)

    return Attention().apply({}, q, k, v)


@passes
def two_steps_per_iteration(q, k, v):

    def backward(q, k, v, ct):
        def one(carry):
            k, v, dq, dk, dv = carry
            of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
            return shifted(k), shifted(v), dq + of_q, shifted(dk + of_k), shifted(dv + of_v)

        start = k, v, *map(jnp.zeros_like, (q, k, v))
        p = jax.lax.axis_size("devices")
        return jax.lax.scan(lambda carry, _: (one(carry), None), start, length=p, unroll=2)[0][2:]

    return with_rule(ring, backward)(q, k, v)

"""Wrong answers to ring_attention, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies


def shifted(a, by=1):
    p = jax.lax.axis_size("devices")
    return jax.lax.ppermute(a, "devices", [(i, (i + by) % p) for i in range(p)])


def weights(q, k, keys=None):
    keys = len(k) * jax.lax.axis_size("devices") if keys is None else keys
    return jax.nn.sigmoid(checkpoint_name(q @ k.T, "scores") / q.shape[-1] ** 0.5 - jnp.log(keys))


def block(q, k, v):
    return weights(q, k) @ v


def zeros(q, v):
    return jnp.zeros_like(q[:, :1] * v[:1])


def ring(q, k, v, block=block, around=lambda step: step, move=shifted, steps=None):
    @around
    def step(carry, _):
        k, v, out = carry
        return (move(k), move(v), out + block(q, k, v)), None

    length = jax.lax.axis_size("devices") if steps is None else steps
    return jax.lax.scan(step, (k, v, zeros(q, v)), length=length)[0][2]


def ring_backward(q, k, v, ct, block=block, move=shifted, move_gradients=shifted, home=lambda a: a):
    def step(carry, _):
        k, v, dq, dk, dv = carry
        of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
        return (move(k), move(v), dq + of_q, move_gradients(dk + of_k), move_gradients(dv + of_v)), None

    start = k, v, *map(jnp.zeros_like, (q, k, v))
    _, _, dq, dk, dv = jax.lax.scan(step, start, length=jax.lax.axis_size("devices"))[0]
    return dq, home(dk), home(dv)


def with_rule(forward, backward=ring_backward):
    attention = jax.custom_vjp(lambda q, k, v: forward(q, k, v))
    attention.defvjp(lambda *arguments: (forward(*arguments), arguments), lambda saved, ct: backward(*saved, ct))
    return attention


right = with_rule(ring)


@fails_with("also saved", "the keys of all steps", "the values of all steps", hint="saved_blocks_of_rule")
def no_checkpoint(q, k, v):
    return ring(q, k, v)


@fails_with("also saved", "the keys of step 1", "the values of step 1", hint="saved_blocks_one_by_one")
def python_loop_with_a_checkpoint_per_step(q, k, v):
    out = 0
    for _ in range(jax.lax.axis_size("devices")):
        out += jax.checkpoint(block)(q, k, v)
        k, v = shifted(k), shifted(v)
    return out


@fails_with("also saved", "intermediate value", hint="saved_scores")
def scores_saved_by_a_policy(q, k, v):
    around = functools.partial(jax.checkpoint, policy=policies.save_only_these_names("scores"))
    return around(functools.partial(ring, around=around))(q, k, v)


@fails_with("link bytes", "all-reduces", "An all-reduce gives each device", hint="all_reduce")
def blocks_broadcast_by_psum(q, k, v):
    @jax.checkpoint
    def step(sender):
        mine = jax.lax.axis_index("devices") == sender
        return block(q, *(jax.lax.psum(jnp.where(mine, a, 0), "devices") for a in (k, v)))

    steps = jnp.arange(jax.lax.axis_size("devices"))
    return jax.lax.scan(lambda out, i: (out + step(i), None), zeros(q, v), steps)[0]


@fails_with(
    "link bytes", "4.0 times as much", "Write down which arrays", hint="arrays_of_each_pass", beyond="SendsAtMost.times"
)
def sent_once_more(q, k, v):
    """The blocks go once around before the first step."""

    def forward(q, k, v):
        p = jax.lax.axis_size("devices")
        k, v = jax.lax.fori_loop(0, p, lambda _, blocks: tuple(map(shifted, blocks)), (k, v))
        return ring(q, k, v)

    return with_rule(forward)(q, k, v)


@fails_with(
    "recomputes",
    "which matmuls of the forward pass",
    hint="count_matmuls_of_a_block",
    beyond="Recomputes.count",
    steps=16,
)
def scores_once_more(q, k, v):
    def more(q, k, v):
        return block(also_run_backward(lambda q, k: q @ k.T, q, q, k), k, v)

    return with_rule(ring, functools.partial(ring_backward, block=more))(q, k, v)


@fails_with("peak", "which received blocks are in memory", hint="stacked_blocks", beyond="PeakAtMost.most", steps=2)
def two_nested_checkpoints(q, k, v):
    """The rerun ring stacks the blocks of all steps."""
    return jax.checkpoint(functools.partial(ring, around=jax.checkpoint))(q, k, v)


@fails_with("peak", "contain 35 matmuls", hint="unrolled_steps", beyond="InLoops.most", steps=7)
def four_steps_after_the_loop(q, k, v):
    after = 4

    def forward(q, k, v):
        p = jax.lax.axis_size("devices")
        out = ring(q, k, v, steps=p - after) if p > after else zeros(q, v)
        k, v = (shifted(a, p - after) for a in (k, v)) if p > after else (k, v)
        for _ in range(min(after, p)):
            out += block(q, k, v)
            k, v = shifted(k), shifted(v)
        return out

    def backward(q, k, v, ct):
        def step(carry, _=None):
            k, v, dq, dk, dv = carry
            of_q, of_k, of_v = jax.vjp(block, q, k, v)[1](ct)
            return (shifted(k), shifted(v), dq + of_q, shifted(dk + of_k), shifted(dv + of_v)), None

        carry = k, v, *map(jnp.zeros_like, (q, k, v))
        if (p := jax.lax.axis_size("devices")) > after:
            carry, _ = jax.lax.scan(step, carry, length=p - after)
        for _ in range(min(after, p)):
            carry, _ = step(carry)
        return carry[2:]

    return with_rule(forward, backward)(q, k, v)


@fails_with("wrong value", "only its own block", "Which collective", hint="two_devices")
def own_block_alone(q, k, v):
    return block(q, k, v)


@fails_with("wrong value", "leaves out one block", "How many steps", hint="two_devices")
def one_step_less(q, k, v):
    return with_rule(functools.partial(ring, steps=jax.lax.axis_size("devices") - 1))(q, k, v)


@fails_with("wrong value", "its own block", "first step", hint="two_devices")
def first_step_left_out(q, k, v):
    return right(q, k, v) - block(q, k, v)


@fails_with("wrong value", "the keys of one device", "How many keys", hint="two_devices")
def log_of_the_own_keys(q, k, v):
    one = functools.partial(lambda q, k, v: weights(q, k, len(k)) @ v)
    return with_rule(functools.partial(ring, block=one), functools.partial(ring_backward, block=one))(q, k, v)


@fails_with("wrong value", "does not subtract", "What does the page subtract", hint="two_devices")
def no_log(q, k, v):
    one = functools.partial(lambda q, k, v: weights(q, k, 1) @ v)
    return with_rule(functools.partial(ring, block=one), functools.partial(ring_backward, block=one))(q, k, v)


@fails_with("wrong value", "does not divide the scores", "What does the page divide", hint="two_devices")
def scores_not_divided(q, k, v):
    return right(q * q.shape[-1] ** 0.5, k, v)


@fails_with("wrong value", "softmax", "Which function", hint="two_devices")
def softmax_of_each_block(q, k, v):
    def one(q, k, v):
        return jax.nn.softmax(q @ k.T / q.shape[-1] ** 0.5) @ v

    return with_rule(functools.partial(ring, block=one), functools.partial(ring_backward, block=one))(q, k, v)


@fails_with("wrong value", hint="two_devices")
def blocks_do_not_move(q, k, v):
    return ring(q, k, v, jax.checkpoint(block), move=lambda a: a)


@fails_with("wrong value", "the ring is open", "to device 0", hint="two_devices")
def open_ring(q, k, v):
    p = jax.lax.axis_size("devices")
    return ring(q, k, v, move=lambda a: jax.lax.ppermute(a, "devices", [(i, i + 1) for i in range(p - 1)]))


@fails_with("wrong gradient", " k", "one device too far", hint="path_of_the_gradients")
def gradients_moved_once_more(q, k, v):
    return with_rule(ring, functools.partial(ring_backward, home=shifted))(q, k, v)


@fails_with("wrong gradient", " k", "stay on the device", "travel with", hint="path_of_the_gradients")
def gradients_stay(q, k, v):
    return with_rule(ring, functools.partial(ring_backward, move_gradients=lambda a: a))(q, k, v)


@fails_with("wrong gradient", " k", "queries of its own device", "other devices' queries", hint="path_of_the_gradients")
def gradients_of_the_own_queries(q, k, v):
    def backward(q, k, v, ct):
        _, dk, dv = jax.vjp(block, q, k, v)[1](ct)
        return ring_backward(q, k, v, ct)[0], dk, dv

    return with_rule(ring, backward)(q, k, v)


@fails_with("wrong gradient", " q", hint="path_of_the_gradients")
def gradient_of_the_last_step(q, k, v):
    def backward(q, k, v, ct):
        return jax.vjp(block, q, shifted(k, -1), shifted(v, -1))[1](ct)[0], *ring_backward(q, k, v, ct)[1:]

    return with_rule(ring, backward)(q, k, v)


@fails_with("wrong gradient", " k", "zero everywhere", hint="path_of_the_gradients")
def blocks_stopped(q, k, v):
    return ring(q, *map(jax.lax.stop_gradient, (k, v)), jax.checkpoint(block))


@fails_with("raises", "What is the name of the mesh axis", hint="shapes_of_one_step")
def axis_of_another_mesh(q, k, v):
    return block(q, *(jax.lax.ppermute(a, "ring", [(0, 1), (1, 0)]) for a in (k, v)))


@fails_with("raises", "maps it over the mesh", hint="shapes_of_one_step")
def mapped_once_more(q, k, v):
    mesh = AbstractMesh((8,), ("devices",), axis_types=(AxisType.Auto,))
    return jax.shard_map(right, mesh=mesh, in_specs=P("devices"), out_specs=P("devices"))(q, k, v)


@fails_with("raises", "What is the initial value", hint="shapes_of_one_step")
def carry_of_a_constant(q, k, v):
    def step(carry, _):
        k, v, out = carry
        return (shifted(k), shifted(v), out + block(q, k, v)), None

    start = k, v, jnp.zeros((len(q), v.shape[1]))
    return jax.lax.scan(step, start, length=jax.lax.axis_size("devices"))[0][2]


@fails_with("raises", "one gradient for each of", hint="shapes_of_one_step")
def rule_that_returns_two_gradients(q, k, v):
    return with_rule(ring, lambda *arguments: ring_backward(*arguments)[1:])(q, k, v)


@fails_with("raises", "Which operand needs a transpose", hint="shapes_of_one_step")
def keys_not_transposed(q, k, v):
    return ring(q, k, v, lambda q, k, v: jax.nn.sigmoid(q @ k) @ v)


@fails_with("wrong type", "f32[", hint="two_devices")
def keys_and_values_summed(q, k, v):
    return right(q, k, v).sum(1)[:, None]

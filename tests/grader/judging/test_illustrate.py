"""The costs of an answer agree with what its findings and claims count."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

import rematscope
from grader.exercises import registry
from grader.judging.illustrate import differs_from_worked, effects_with_others


def reshaped_before(params, x, k):
    @jax.checkpoint
    def all_microbatches(params, x):
        up, down = (jax.lax.all_gather(shard, "devices", tiled=True) for shard in params)
        return jax.lax.map(jax.checkpoint(lambda rows: rows + jnp.sin(rows @ up) @ down), x)

    return all_microbatches(params, x.reshape(k, -1, x.shape[-1])).reshape(x.shape)


def stopped_outside(frozen, adapters, x):
    frozen = jax.lax.stop_gradient(frozen)

    def project(key, x):
        if key not in adapters:
            return x @ frozen[key]
        a, b = adapters[key]
        return x @ frozen[key] + checkpoint_name(x @ a, "saved") @ b

    def layer(adapters, x):
        return project("down", jax.nn.silu(checkpoint_name(project("up", x), "saved")))

    saved = jax.checkpoint_policies.save_only_these_names("saved")
    return jax.checkpoint(layer, policy=saved)(adapters, x)


def all_again(g, h, x):
    def bwd(dz):
        y, g_vjp = jax.vjp(g, x)
        return g_vjp(*jax.vjp(h, y)[1](dz))[0]

    return h(g(x)), bwd


def effects(exercise, answer):
    case = registry.task(exercise).shown
    passes = rematscope.trace(case.differentiated(answer), *case.arguments)
    return effects_with_others(exercise, case, case, passes)


def costs(exercise, answer):
    return {e.label: (e.saved_bytes, e.recomputed_flops) for e in effects(exercise, answer)}


def test_a_reshaped_argument_is_no_computed_residual():
    found = costs("microbatch_fsdp", reshaped_before)
    assert found["your answer"] == found["the worked answer"] and found["your answer"][0] == 0
    assert found["no checkpoint"][0] > 0


def test_an_argument_under_stop_gradient_is_no_computed_residual():
    found = costs("lora_layer", stopped_outside)
    assert found["your answer"] == found["the worked answer"]


def test_matmuls_with_weights_that_bwd_closes_over_are_recomputed():
    """The functions of exercise 2 convert their weights, so each pass closes over other arrays."""
    found = costs("vjp_by_hand", all_again)
    product = 2 * 256 * 64 * 64
    assert [found[label][1] // product for label in ("your answer", "the worked answer")] == [3, 2]


def both_offloaded(layer):
    """Offload the layers' results next to their inputs: only the bytes in host memory differ from the worked answer."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["carry", "h"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    @functools.partial(jax.checkpoint, policy=policy)
    def named(x, w):
        return layer(w, checkpoint_name(x, "carry")) * checkpoint_name(1 + 0 * jnp.sin(x), "h")

    return lambda ws, x: jax.lax.scan(lambda x, w: (named(x, w), None), x, ws)[0]


def test_bytes_in_host_memory_are_costs():
    found = effects("offload_carry", both_offloaded)
    yours, worked, *others = found
    assert yours.host_bytes == 2 * worked.host_bytes > 0 == others[0].host_bytes
    assert differs_from_worked([dataclasses.replace(worked, label=yours.label, host_bytes=yours.host_bytes), worked])

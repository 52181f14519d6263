"""Right answers to offload_carry, spelled in many ways."""

import functools

import equinox as eqx
import jax
from jax.ad_checkpoint import Offloadable, checkpoint_name
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies
to_host = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["layer_input"],
    offload_src="device",
    offload_dst="pinned_host",
)


def named(layer):
    return lambda w, x: layer(w, checkpoint_name(x, "layer_input"))


@passes
def named_in_a_wrapped_layer(layer):
    wrapped = jax.checkpoint(named(layer), policy=to_host)

    @jax.jit
    def net(ws, x):
        return jax.lax.scan(lambda x, w: (wrapped(w, x), None), x, ws)[0]

    return net


@passes
def one_checkpoint_around_the_scan(layer):
    def net(ws, x):
        return jax.lax.scan(lambda x, w: (named(layer)(w, x), None), x, ws)[0]

    return jax.checkpoint(net, policy=to_host)


@passes
def policy_of_ones_own(layer):
    def policy(operation, *_, **parameters):
        if operation.name == "name" and parameters["name"] == "carry":
            return Offloadable(src="device", dst="pinned_host")
        return False

    @functools.partial(jax.remat, policy=policy)
    def body(x, w):
        x = checkpoint_name(x, "carry")
        return layer(w, x), None

    return lambda ws, x: jax.lax.scan(body, x, ws)[0]


@passes
def weights_by_number(layer):
    def net(ws, x):
        body = jax.checkpoint(lambda i, x: named(layer)(ws[i], x), policy=to_host)
        return jax.lax.fori_loop(0, len(ws), body, x)

    return net


@passes
def other_names_saved_where_there_are_none(layer):
    policy = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["nowhere"],
        names_which_can_be_offloaded=["layer_input", "nowhere else"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    body = jax.checkpoint(lambda x, w: (named(layer)(w, x),) * 2, policy=policy, prevent_cse=False)
    return lambda ws, x: jax.lax.scan(body, x, ws)[1][-1]


@passes
def equinox_modules(layer):
    class Layer(eqx.Module):
        w: jax.Array

        def __call__(self, x):
            return named(layer)(self.w, x)

    def net(ws, x):
        arrays, others = eqx.partition(Layer(ws), eqx.is_array)
        step = eqx.filter_checkpoint(lambda own, x: eqx.combine(own, others)(x), policy=to_host)
        return jax.lax.scan(lambda x, own: (step(own, x), None), x, arrays)[0]

    return net

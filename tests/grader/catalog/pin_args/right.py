"""Right answers to pin_args, spelled in many ways."""

import functools
import inspect

import equinox as eqx
import flax.linen as nn
import jax
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def counted_when_called(f):
    return lambda *own: jax.checkpoint(f, prevent_cse=tuple(place == len(own) - 1 for place in range(len(own))))(*own)


@passes
def counted_by_its_signature(f):
    count = len(inspect.signature(f).parameters)
    return jax.remat(f, prevent_cse=(False,) * (count - 1) + (True,))


@passes
def weights_in_a_tuple(f):
    @functools.partial(jax.checkpoint, prevent_cse=(False, True))
    def layer(weights, x):
        return f(*weights, x)

    return lambda *arguments: layer(arguments[:-1], arguments[-1])


@passes
def all_in_a_dict(f):
    return lambda *own: jax.checkpoint(lambda both: f(*both["w"], both["x"]), prevent_cse=({"w": False, "x": True},))(
        {"w": own[:-1], "x": own[-1]}
    )


@passes
def by_hand(f):
    @jax.custom_vjp
    def layer(*arguments):
        return f(*arguments)

    def backward(arguments, ct):
        *weights, x = arguments
        x, ct = jax.lax.optimization_barrier((x, ct))
        return jax.vjp(f, *weights, x)[1](ct)

    layer.defvjp(lambda *arguments: (f(*arguments), arguments), backward)
    return layer


@passes
def compiled(f):
    return jax.jit(lambda *own: jax.checkpoint(f, prevent_cse=[*(False for _ in own[1:]), True])(*own))


@passes
def an_equinox_module(f):
    class Pinned(eqx.Module):
        def __call__(self, *own):
            return jax.checkpoint(f, prevent_cse=(*(False for _ in own[1:]), True))(*own)

    return Pinned()


@passes
def a_linen_module(f):
    class Pinned(nn.Module):
        @nn.compact
        def __call__(self, *own):
            return jax.remat(f, prevent_cse=(*(False for _ in own[1:]), True))(*own)

    return lambda *own: Pinned().apply({}, *own)

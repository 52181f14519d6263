"""Operations on vectors of three that tests compose functions of."""

import jax
import jax.numpy as jnp
from jax import lax

UNARY = {
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tanh": jnp.tanh,
    "exp": lambda x: jnp.exp(-x * x),
    "relu": jax.nn.relu,
    "negative": jnp.negative,
    "stop": lax.stop_gradient,
    "halved": lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
    "softmax": jax.nn.softmax,
    "flip": lambda x: x[::-1],
    "reshape": lambda x: jnp.sum(x.reshape(3, 1) * jnp.ones(2), axis=1),
    "cumsum": jnp.cumsum,
}
BINARY = {"add": jnp.add, "mul": jnp.multiply, "sub": jnp.subtract, "max": jnp.maximum}

"""What the functions of exercises are made of, by operations of lax.

Each of jax.numpy's is a program in the program. A check traces hundreds of them, several times.
"""

import jax
from jax import lax


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """`x @ w`, for an x of any number of axes, at least one, and a matrix w."""
    return lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ())))


def scaled(x: jax.Array, factor: float) -> jax.Array:
    """`factor * x`."""
    return lax.mul(x, lax.full_like(x, factor))

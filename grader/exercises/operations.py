"""What the functions of exercises are made of, by operations of lax.

Each of jax.numpy's is a program in the program. A check traces hundreds of them, several times.
"""

import jax
import numpy as np
from jax import lax


def product(x: jax.Array, w: jax.Array | np.ndarray) -> jax.Array:
    """`x @ w`, for an x of any number of axes, at least one, and a matrix w."""
    return lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ())))


def scaled(x: jax.Array, factor: float) -> jax.Array:
    """`factor * x`."""
    return lax.mul(x, lax.full_like(x, factor))


def mixing_weights(rng: np.random.Generator, width: int, gain: float, dtype: str) -> np.ndarray:
    """Return a random orthogonal matrix whose rows are scaled by 0.7 to 1 times the gain.

    A chain of such matmuls mixes all elements and amplifies rounding errors little: the spectral norm is at most the
    gain. A matrix of independent random elements has a spectral norm about twice its typical gain, so that after 32
    layers of it two programs that round differently no longer agree in any digit.
    """
    orthogonal, _ = np.linalg.qr(rng.normal(size=(width, width)))
    return np.asarray(gain * rng.uniform(0.7, 1, (width, 1)) * orthogonal, dtype)

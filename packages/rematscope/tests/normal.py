"""Random arrays that NumPy draws. XLA takes about a tenth of a second to compile `jax.random.normal` for each shape."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike


def normal(seed: int, *shapes: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> list[jax.Array]:
    """Return one array of the standard normal distribution for each shape."""
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]

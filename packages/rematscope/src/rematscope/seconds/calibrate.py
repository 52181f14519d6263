"""`calibrate()`: measured rates of the device that JAX uses."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rematscope.render.progress import progress_message
from rematscope.seconds.devices import Device

_RUNS = 9  # of each program; the fastest counts, because other programs on the machine only add time


def calibrate() -> Device:
    """Measure the rates of JAX's default device for matmuls, copies, elementwise arithmetic and `exp`.

    This takes several seconds. The fastest of nine runs counts, so other programs on the machine have little effect.

    Returns:
      A `Device`, to pass to `estimate_time` or as any function's `device=`. Its `source` says what was measured.

    Example:
      >>> from rematscope import calibrate
      >>> here = calibrate()  # doctest: +SKIP
      >>> f"{here.matmul['float32'] / 1e9:.0f} GFLOP/s, {here.bandwidth / 1e9:.0f} GB/s"  # doctest: +SKIP
      '110 GFLOP/s, 9 GB/s'
    """
    with progress_message("calibrating"):
        device = jax.devices()[0]
        size = 1024 if device.platform == "cpu" else 8192
        products = {}
        for dtype in (jnp.float32, jnp.bfloat16):
            square = jnp.ones((size, size), dtype)
            products[str(square.dtype)] = 2 * size**3 / fastest_seconds(lambda a: a @ a, square)
        large = jnp.ones(2**26, jnp.float32)  # 256 MiB, more than any cache; in a loop, which reuses its memory
        bandwidth = 2 * 8 * large.nbytes / fastest_seconds(lambda a: lax.fori_loop(0, 8, lambda _, a: a + 1, a), large)
        small = jnp.ones(2**16 if device.platform == "cpu" else 2**24, jnp.float32)  # on a CPU, it fits in a cache
        times = 200

        def repeated(step: Callable[[Any], Any]) -> float:
            return (
                small.size * times / fastest_seconds(lambda a: lax.fori_loop(0, times, lambda _, a: step(a), a), small)
            )

        return Device(
            name=device.device_kind if device.platform != "cpu" else "cpu",
            matmul=products,
            bandwidth=bandwidth,
            arithmetic=16 * repeated(functools.partial(_apply_polynomial, 8)),
            transcendentals=repeated(lambda a: jnp.exp(-a)),
            source=f"calibrate(): matmuls of {size} × {size} and a sum of 256 MiB, the fastest of {_RUNS} runs",
        )


def _apply_polynomial(degree: int, a: Any) -> Any:
    result = a
    for _ in range(degree):
        result = result * a + 0.5  # 2 FLOPs
    return result


def fastest_seconds(f: Callable[[Any], Any], argument: Any) -> float:
    """Return the time in seconds of the fastest run of the compiled `f`."""
    compiled = jax.jit(f).lower(argument).compile()
    found = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        jax.block_until_ready(compiled(argument))
        found.append(time.perf_counter() - start)
    return min(found)

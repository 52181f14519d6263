"""Trace cuDNN's fused attention on a machine that has no GPU.

`jax.nn.dot_product_attention(…, implementation="cudnn")` checks the versions of cuDNN and of the GPU while it is
traced, and raises "cuDNN is not detected" if there are none. The shapes of its results do not depend on the versions:
the checks only refuse what older versions do not support. Inside `make_jaxpr` a machine without a GPU passes the checks
as a Hopper GPU with cuDNN 9.13 does. A program that is traced this way cannot run by mistake: JAX has no lowering of
cuDNN's attention for a CPU.
"""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax._src import xla_bridge
from jax._src.cudnn import fused_attention_stablehlo

from rematscope.jax_compat.host_memory import with_memory

CUDNN_VERSION = 91300
COMPUTE_CAPABILITY = (9, 0)


def make_jaxpr(f: Callable[..., Any], return_shape: bool = False) -> Callable[..., Any]:
    """Return a function that traces `f` as `jax.make_jaxpr` does, cuDNN's attention and host memory included."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        with assuming_gpu():
            tracing: Callable[..., Any] = jax.make_jaxpr  # its type depends on `return_shape`
            args, kwargs = jax.tree.map(with_memory, (args, kwargs))
            return tracing(f, return_shape=return_shape)(*args, **kwargs)

    return traced


@contextlib.contextmanager
def assuming_gpu() -> Iterator[None]:
    """Let this thread trace cuDNN's attention without a GPU within the context. With a GPU, this changes nothing."""
    token = _assumes.set(True)
    _install_checks()
    try:
        yield
    finally:
        _restore_checks()
        _assumes.reset(token)


_ASSUMED: dict[str, Callable[..., Any]] = {
    "check_cudnn_version": lambda: CUDNN_VERSION,
    "check_compute_capability": lambda least: tuple(map(int, least.split("."))) <= COMPUTE_CAPABILITY,
    "is_cuda_compute_capability_equal": lambda other: tuple(map(int, other.split("."))) == COMPUTE_CAPABILITY,
}
_assumes = contextvars.ContextVar("assumes a GPU", default=False)
# The checks are globals of JAX's module. They are replaced while any thread is in the context. The replacements affect
# only these threads, and call the original checks for all other threads.
_lock = threading.Lock()
_inside = 0
_originals: dict[str, Callable[..., Any]] = {}


def _install_checks() -> None:
    global _inside
    with _lock:
        _inside += 1
        if _inside == 1:
            for name, assumed in _ASSUMED.items():
                if (original := getattr(fused_attention_stablehlo, name, None)) is not None:
                    _originals[name] = original
                    setattr(fused_attention_stablehlo, name, _answer_for_thread(original, assumed))


def _restore_checks() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if not _inside:
            for name, original in _originals.items():
                setattr(fused_attention_stablehlo, name, original)


def _answer_for_thread(original: Callable[..., Any], assumed: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def check(*args: Any) -> Any:
        # A backend's version names the platform behind it, which JAX's own check reads too.
        has_gpu = "cuda" in xla_bridge.get_backend().platform_version
        return original(*args) if has_gpu or not _assumes.get() else assumed(*args)

    return check

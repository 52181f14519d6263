"""Reset the settings of JAX, NumPy and Python, so that no verdict depends on a learner's settings."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

# The default values of settings that change what is traced, how it is checked, or how it runs. `jax_remat3` is not
# among them, because programs that JAX's new rematerialization traces are judged too.

# Settings of a thread within a context, such as `with jax.disable_jit():`, which are stored separately from
# `jax.config`.
OF_A_THREAD: dict[str, Any] = {
    "jax_check_tracer_leaks": False,
    "jax_debug_infs": False,
    "jax_debug_key_reuse": False,
    "jax_debug_nans": False,
    "jax_default_device": None,
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_disable_jit": False,
    "jax_enable_checks": False,
    "jax_enable_custom_prng": False,
    "jax_enable_x64": False,
    "jax_explain_cache_misses": False,
    "jax_legacy_prng_key": "allow",
    "jax_log_compiles": False,
    "jax_no_execution": False,
    "jax_no_tracing": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_softmax_custom_jvp": False,
    "jax_threefry_partitionable": True,
}
OF_THE_PROCESS: dict[str, Any] = {
    "eager_constant_folding": False,
    "jax_accurate_erf_inv": False,
    "jax_allow_f16_reductions": True,
    "jax_captured_constants_warn_bytes": 2_000_000_000,
    "jax_check_static_indices": False,
    "jax_compiler_enable_remat_pass": True,
    "jax_custom_jvp3": False,
    "jax_custom_vjp3": False,
    "jax_disable_bwd_checks": False,
    "jax_disable_most_optimizations": False,
    "jax_error_checking_behavior_divide": "ignore",
    "jax_error_checking_behavior_nan": "ignore",
    "jax_error_checking_behavior_oob": "ignore",
    "jax_log_checkpoint_residuals": False,
    "jax_memory_fitting_level": "O2",
    "jax_mutable_array_checks": True,
    "jax_optimization_level": "UNKNOWN",
    "jax_random_seed_offset": 0,
    "jax_remat_barrier_no_cotangents": False,
    "jax_scan3": False,
    "jax_use_direct_linearize": True,
    "jax_use_hlo_logistic_lowering": None,
    "jax_use_rgv3": True,
    "jax_use_shardy_partitioner": True,
    "jax_use_simplified_jaxpr_constants": False,
}
_RECURSION = 1000  # Python's default; a learner may have raised it, and it is never lowered


@contextlib.contextmanager
def default_settings() -> Iterator[None]:
    """Run with the default value of every setting, and restore all settings afterwards.

    This affects only the current thread, except for settings of the whole process, which have their defaults while any
    thread is in this context.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_of_the_process)
        for name, value in OF_A_THREAD.items():
            stack.enter_context(getattr(jax, name.removeprefix("jax_"))(value))
        stack.enter_context(jax.transfer_guard("allow"))
        if not jax.sharding.get_abstract_mesh().empty:
            stack.enter_context(jax.set_mesh(jax.sharding.Mesh(np.empty((), object), ())))
        stack.enter_context(np.errstate(all="ignore"))
        yield


class _OfTheProcess:
    """Resets the settings of the process when the first thread enters, and restores them when the last thread
    leaves."""

    def __init__(self) -> None:
        self._lock, self._threads = threading.Lock(), 0
        self._before: dict[str, Any] = {}
        self._recursion_limit = _RECURSION

    def __enter__(self) -> None:
        with self._lock:
            if self._threads == 0:
                now = jax.config.values
                self._before = {name: now[name] for name, value in OF_THE_PROCESS.items() if now[name] != value}
                for name in self._before:
                    jax.config.update(name, OF_THE_PROCESS[name])
                self._recursion_limit = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self._recursion_limit, _RECURSION))
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                for name, value in self._before.items():
                    jax.config.update(name, value)
                sys.setrecursionlimit(self._recursion_limit)


_of_the_process = _OfTheProcess()

"""JAX state that only private modules expose: rematerialization mode, active transformations, and backends."""

import contextlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import Any, cast

import jax
import jaxlib.version
from jax._src import config, core, hardware_utils, xla_bridge

REMAT3_IS_PREDICTABLE = jax.__version_info__ >= (0, 11)  # JAX 0.10's saves other values, in loops and in custom rules


def remat3() -> bool:
    """Return whether `jax_remat3` is set (`JAX_REMAT3=1`); always False before JAX 0.10, which does not have it."""
    return hasattr(config, "remat3") and bool(config.remat3.value)


def default_remat() -> contextlib.AbstractContextManager[Any]:
    """Return a context manager under which JAX uses its default rematerialization, whatever `jax_remat3` is set to."""
    return use_remat3(False)


def use_remat3(on: bool) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager that sets `jax_remat3` in this thread, where JAX has it (not in JAX 0.9)."""
    return config.remat3(on) if hasattr(config, "remat3") else contextlib.nullcontext()


def is_named_axis(name: Any) -> bool:
    """Return whether a `vmap` whose batching rules get this name has an `axis_name`, which collectives can use."""
    return name is not core.no_axis_name


@contextlib.contextmanager
def outside_transformations(keeps_axes: bool = False) -> Iterator[None]:
    """Leave the caller's transformations within the context: their trace, their named axes and their manual mesh.

    Args:
      keeps_axes: whether to leave only the trace, so that functions may still use the named axes.
    """
    context, mesh = cast(Any, core.trace_ctx), jax.sharding.get_abstract_mesh()
    is_manual = jax.sharding.AxisType.Manual in mesh.axis_types and not keeps_axes
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())) if is_manual else None
    trace, axes = context.trace, context.axis_env
    with no_mesh or contextlib.nullcontext():
        context.set_trace(core.eval_trace)
        if not keeps_axes:
            context.set_axis_env(core.top_axis_env)
        try:
            yield
        finally:
            context.set_trace(trace)
            context.set_axis_env(axes)


def misreads_offloaded_stacks(target: str) -> bool:
    """Return whether XLA reads the offloaded residuals of a `scan` in the wrong order, without an error.

    jaxlib 0.11.0 does so on GPUs: https://github.com/openxla/xla/pull/46231.
    """
    return jaxlib.version.__version__ == "0.11.0" and "gpu" in (target, jax.default_backend())


def start_no_absent_tpu() -> None:
    """Set `jax_platforms` to `cpu` if libtpu is installed, the machine has no TPU, and no platform is chosen yet.

    JAX starts all backends when it needs its first device, for example for lowering. Without a TPU, libtpu may then
    wait for minutes for a metadata server or for other hosts, before JAX uses the CPU. If a plugin of another
    accelerator is installed, JAX keeps the choice.
    """
    if jax.config.jax_platforms or "JAX_FORCE_TPU_INIT" in os.environ or importlib.util.find_spec("libtpu") is None:
        return
    hardware, settings = cast(Any, hardware_utils), cast(Any, jax.config)  # these functions of JAX have no types
    if xla_bridge.backends_are_initialized() or hardware.num_available_tpu_chips_and_device_id()[0]:
        return
    if importlib.util.find_spec("jax_plugins") or importlib.metadata.entry_points(group="jax_plugins"):
        return
    settings.update("jax_platforms", "cpu")

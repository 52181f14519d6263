"""`auto(f, peak=…)`: a function that computes and differentiates as `f` does, within a memory limit."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast, overload

import jax

from rematscope.choices.build import CostFunction, work
from rematscope.errors import PlanError
from rematscope.ir.gc_pause import gc_paused
from rematscope.planning.budget import budget_bytes
from rematscope.render.progress import progress
from rematscope.render.units import bytes_text
from rematscope.scheduling.argnums import ArgNums, check_argnums
from rematscope.scheduling.host import HostOffload
from rematscope.scheduling.per_call import PlannedPerCall
from rematscope.scheduling.planned import Planned
from rematscope.scheduling.result import Auto, Decorated, reference
from rematscope.scheduling.search import Search
from rematscope.scheduling.settings import SETTINGS
from rematscope.seconds.devices import DEVICES, Device, cost_meant, device_called
from rematscope.xla.compiling import check_target

P = ParamSpec("P")
R = TypeVar("R")


class AutoFunction(PlannedPerCall[P, R]):
    """A function whose gradient stays within a memory limit, which `auto` made of another function.

    Call it like the function, transform it with `jax.jit`, `jax.grad` or `jax.vmap`, and inspect a plan with `.plan`.
    """

    def __init__(self, f: Callable[P, R], argnums: ArgNums, options: "_Options"):
        super().__init__(f, argnums)
        self._options = options

    def __repr__(self) -> str:
        limit = "peak" if self._options.limits_peak else "saved"
        argnums = "" if self.argnums is None else f", argnums={self.argnums}"
        return f"<auto({self.__name__}, {limit}={bytes_text(self._options.limit)!r}{argnums})>"

    def __reduce__(self) -> Any:
        found = reference(self.__wrapped__)
        if isinstance(found, Decorated) and found.by is self:
            return str(vars(self)["__qualname__"])  # a decorated function of a module: pickle finds it by its name
        return AutoFunction, (self.__wrapped__, self.argnums, self._options)

    def plan(self, /, *args: P.args, **kwargs: P.kwargs) -> Auto:
        """Return the plan for calls with arguments like these: to inspect or save it, or to compile before training.

        A later call with such arguments uses this plan, and a plan that a call has made is returned.

        Args:
          *args, **kwargs: arguments of the function: arrays, or `jax.ShapeDtypeStruct`s.

        Raises:
          PlanError, TraceError, TargetError: for the same reasons as a call; see `auto`.
        """
        __tracebackhide__ = True
        result: Auto = self._plan_for_call(args, kwargs)
        return result

    def _make_plan(self, args: tuple[Any, ...], kwargs: dict[str, Any], grad_mask: tuple[bool, ...] | None) -> Auto:
        return self._options.search(self.__wrapped__, args, kwargs, grad_mask, self.argnums)

    def _function_of(self, plan: Auto) -> Planned:
        return plan.function


class _Options(NamedTuple):
    """The checked options of `auto`."""

    limit: int
    limits_peak: bool
    target: str
    compiles: int
    cost: CostFunction
    host: HostOffload | None

    def search(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grad_mask: tuple[bool, ...] | None,
        argnums: tuple[int, ...] | None,
    ) -> Auto:
        """Search for a plan for one call."""
        __tracebackhide__ = True
        with progress() as tell, gc_paused():
            tell("tracing", 0)
            search = Search(f, args, kwargs, self.target, self.compiles, self.cost, self.host, grad_mask)
            search.tell = tell
            try:
                candidate, bound = (search.within_peak if self.limits_peak else search.within_saved)(self.limit)
            except KeyboardInterrupt as stopped:
                stopped.add_note(_progress_note(search, self.limit))
                raise
        return Auto(search, candidate, self.limit, self.limits_peak, bound, argnums)


@overload
def auto(
    f: Callable[P, R],
    *,
    peak: int | str | None = None,
    saved: int | str | None = None,
    argnums: ArgNums = None,
    target: str = "cpu",
    compiles: int = SETTINGS.compiles,
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    host: HostOffload | None = None,
) -> AutoFunction[P, R]: ...


@overload
def auto(
    *,
    peak: int | str | None = None,
    saved: int | str | None = None,
    argnums: ArgNums = None,
    target: str = "cpu",
    compiles: int = SETTINGS.compiles,
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    host: HostOffload | None = None,
) -> Callable[[Callable[P, R]], AutoFunction[P, R]]: ...


def auto(
    f: Callable[..., Any] | None = None,
    *,
    peak: int | str | None = None,
    saved: int | str | None = None,
    argnums: ArgNums = None,
    target: str = "cpu",
    compiles: int = SETTINGS.compiles,
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    host: HostOffload | None = None,
) -> Any:
    """Transform `f` so that its gradient stays within a memory limit.

    The transformed function returns what `f` returns, and its gradient is that of `f`. `auto` chooses which values to
    save between the forward and the backward pass, and when to recompute the others; you name nothing. JAX's
    checkpoints around layers and loop iterations, its policies, and the checkpoints of `f` are among the choices.

    The first call with new shapes, dtypes, pytrees or static values makes a plan, as the first call of a `jax.jit`
    function compiles: it traces `f`, searches, and compiles a few candidates, which may take minutes. Later calls with
    equal ones reuse the plan; a function keeps its last 128 plans. A call under `jax.jit`, `jax.grad`, `jax.vmap` or in
    the body of a `scan` is planned when it is traced. Like `jax.jit`, a plan captures the variables that `f` closes
    over when it is made; the value and the derivatives come from this one trace.

    The limit applies to the gradient of one call that is compiled by itself. `jax.vmap` of the transformed function
    multiplies its memory: put the `vmap` into `f`. Inside `jax.jit`, JAX does not say how automatic mesh axes shard an
    argument: call `.plan` with the sharded arrays first.

    Args:
      f: A function that is differentiable in reverse mode, such as a loss. Without `f`, `auto` returns a decorator.
      peak: Limit of the compiled peak in bytes: arguments, outputs, gradients and temporaries, as JAX's
        `memory_analysis` of the compiled gradient counts them. An integer or a string such as `"8 GiB"`. (The
        `peak_bytes` of `measure` also count the cotangent of a scalar and constants of the compiler.)
      saved: In place of `peak`, a limit of the bytes that are saved for the backward pass.
      argnums: Which arguments get a gradient: an integer or several, as for `jax.grad`; None for all floating-point
        arguments. The backward pass computes no gradient for the others, such as a batch of images, and differentiating
        with respect to them is an error. The integers count positional parameters of `f`, also when a call passes them
        by keyword; keyword-only arguments get a gradient only with None.
      target: What to compile for, as for `measure`.
      compiles: How many candidates to compile at most.
      cost: What the choice minimizes: the FLOPs and transcendentals that are recomputed, by default; `"seconds"` of a
        roofline of `device`; or a function of an `Equation`, which is asked about those of the forward pass.
      device: With `cost="seconds"`, the name of a device such as `"tpu v5e"`, a `Device`, or `calibrate()`.
      host: Host memory as a third choice, `HostOffload(bandwidth=16e9)`: residuals that loops stack may be offloaded,
        if a stack has 1 MiB or more. The choice then minimizes the estimated time, including waits for transfers. The
        estimate uses the target's rates if they are known and neither `cost` nor `device` is given. A function without
        loops has nothing to offload, and the memory of a CPU is the host's.

    Returns:
      A callable like `f`. Its `.plan(*args)` returns the plan as an `Auto`, to inspect or save. `jax.jit`, `vmap`,
      forward mode and second derivatives work on it.

    Raises:
      PlanError: At once if an option cannot be used. When it plans: if the limit cannot be met, with the smallest peak
        that was reached; if `f` changes the state of an object, such as a module of Flax's nnx, or closes over a traced
        value; if nothing of `f` can move to a `host`; if `f` is a training step, which takes gradients itself; or if
        `argnums` is out of range. When it is differentiated with respect to an argument that is not in `argnums`.
      TraceError, TargetError: while planning, in the cases in which `measure` raises them.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import auto
      >>> @auto(peak="90 KiB")
      ... def loss(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return x.sum()
      >>> args = [jnp.ones((8, 8))] * 8, jnp.ones((256, 8))
      >>> gradients = jax.jit(jax.grad(loss))(*args)
      >>> loss.plan(*args).measurement.peak_bytes <= 90 * 1024
      True
    """
    __tracebackhide__ = True
    given, name = (peak, "peak") if saved is None else (saved, "saved")
    if given is None or (peak is not None and saved is not None):
        raise PlanError("auto needs exactly one limit: peak=, for the compiled peak, or saved=, for the saved bytes.")
    if not isinstance(compiles, int) or isinstance(compiles, bool) or compiles < 1:
        raise PlanError(f"compiles={compiles!r} is not valid: auto compiles what it returns. Give 1 or more.")
    check_argnums(argnums)
    limit = budget_bytes(given, name)
    check_target(target)
    counted = (
        cost_meant(cost, device) if host is None else _offload_device(host, cost, device, target, peak is not None)
    )
    options = _Options(limit, peak is not None, target, compiles, counted, host)
    make = functools.partial(AutoFunction, argnums=argnums, options=options)
    return make if f is None else make(f)


def _progress_note(search: Search, limit: int) -> str:
    """Return what had been compiled when a search was stopped, and how to get it."""
    fits = [candidate for candidate in search.compiled if candidate.fits(limit)]
    which = f"{len(search.compiled)} of at most {search.compiles} choices for {search.name} were compiled"
    if not search.compiled:
        return f"Nothing had been compiled for {search.name}."
    if not fits:
        least = min(candidate.peak_bytes for candidate in search.compiled)
        return f"{which}. None fits into {bytes_text(limit)}; the smallest needs {bytes_text(least)}."
    least = min(candidate.peak_bytes for candidate in fits)
    return f"{which}. One needs {bytes_text(least)}: compiles={len(search.compiled)} would stop there."


def _offload_device(host: Any, cost: Any, device: Any, target: str, limits_peak: bool) -> Device:
    """Return the device whose seconds weigh transfers against recompute."""
    if not isinstance(host, HostOffload):
        raise PlanError(f"host={host!r} is not a HostOffload. Pass HostOffload(bandwidth=16e9), or remove host=.")
    if not hasattr(jax, "memory"):
        raise PlanError(f"JAX {jax.__version__} has no jax.memory, which offloading needs. Install a newer JAX.")
    if target == "cpu" and limits_peak:
        raise PlanError(
            "host= has no effect on the peak of a CPU, whose memory is the host memory. Compile for a device with its "
            "own memory, such as target='tpu v5e', or remove host=."
        )
    if cost == work and device is None and target.partition(":")[0] in DEVICES:
        return device_called(target)
    if cost != "seconds":
        raise PlanError(
            "host= needs a cost in seconds, to weigh transfers against recompute: add cost='seconds' and a "
            "device, device='tpu v5e'."
        )
    return cast(Device, cost_meant(cost, device))

"""`auto(f, peak=…)`: transforms a function so that its gradient stays within a memory limit."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast, overload

import jax
import jax.numpy as jnp

from rematscope.choices.build import CostFunction, work
from rematscope.errors import PlanError
from rematscope.ir.gc_pause import gc_paused
from rematscope.ir.program import type_text
from rematscope.planning.budget import budget_bytes, check_count
from rematscope.render.progress import progress
from rematscope.render.units import bytes_text
from rematscope.scheduling.argnums import ArgNums, check_argnums, without_gradient
from rematscope.scheduling.captured import name_in_closure, with_outer_values
from rematscope.scheduling.host import HostOffload
from rematscope.scheduling.per_call import GradientCall, PlannedPerCall
from rematscope.scheduling.result import Auto, reduce_wrapper
from rematscope.scheduling.search import ScheduleSearch, SearchOptions
from rematscope.scheduling.settings import SETTINGS
from rematscope.seconds.devices import DEVICES, Device, device_called, resolve_cost
from rematscope.tracing.checkpoints import CalledOnce, replace_calls
from rematscope.tracing.static_values import call_with_static
from rematscope.xla.compiling import check_target

P = ParamSpec("P")
R = TypeVar("R")


class AutoFunction(PlannedPerCall[P, R, Auto]):
    """The result of `auto`: a function whose gradient stays within a memory limit.

    Call it like the original function, transform it with `jax.jit`, `jax.grad` or `jax.vmap`, and inspect its plan for
    given arguments with `.plan`.
    """

    def __init__(self, f: Callable[P, R], argnums: ArgNums, options: SearchOptions):
        super().__init__(f, argnums)
        self._options = options

    def __repr__(self) -> str:
        limit = "peak" if self._options.limits_peak else "saved"
        argnums = "" if self.argnums is None else f", argnums={self.argnums}"
        return f"<auto({self.__name__}, {limit}={bytes_text(self._options.limit)!r}{argnums})>"

    def __reduce__(self) -> Any:
        return reduce_wrapper(self, self.__wrapped__, self.argnums, self._options)

    def plan(self, /, *args: P.args, **kwargs: P.kwargs) -> Auto:
        """Return the plan for calls with such arguments.

        Use it to inspect or save the plan, or to run the search before training starts.

        If there is no plan for these shapes, dtypes, pytrees and static values yet, `plan` makes one, which later calls
        use.

        Args:
          *args, **kwargs: the arguments of the function, as for `trace`.

        Raises:
          PlanError, TraceError, TargetError: as for a call; see `auto`.
        """
        __tracebackhide__ = True
        return self._plan_for_call(*call_with_static(self.__wrapped__, args, kwargs, self._rule))

    def _make_plan(self, call: GradientCall) -> Auto:
        __tracebackhide__ = True
        options = self._options
        with progress() as tell, gc_paused():
            tell("tracing", 0)
            search = options.search(call)
            search.tell = tell
            try:
                candidate, bound = (search.within_peak if options.limits_peak else search.within_saved)(options.limit)
            except KeyboardInterrupt as stopped:
                stopped.add_note(_progress_note(search, options.limit))
                raise
        return Auto(search, candidate, options, bound, self.argnums)


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

    The transformed function has the values and the gradients of `f`. `auto` chooses which values the forward pass
    saves, and when the backward pass recomputes the other values. `f` needs no checkpoints and no checkpoint names. The
    candidates also include checkpoints around layers and loop iterations, JAX's policies, and the checkpoints of `f`.

    The first call with new shapes, dtypes, pytrees or static values makes a plan, just as the first call of a `jax.jit`
    function compiles: it traces `f`, searches, and compiles a few candidates, which may take minutes. Later calls with
    the same shapes, dtypes, pytrees and static values reuse the plan. The transformed function keeps the 128 most
    recently used plans. A call under `jax.jit`, `jax.grad`, `jax.vmap` or in the body of a `scan` is planned during
    tracing. Like `jax.jit`, a plan captures the variables that `f` closes over at the time of planning. The values and
    the derivatives come from this one trace.

    The limit applies to the gradient of one call that is compiled separately. `jax.vmap` of the transformed function
    multiplies its memory, so put the `vmap` inside `f`. Inside `jax.jit`, JAX does not provide the sharding of an
    argument over automatic mesh axes, so call `.plan` with the sharded arrays first.

    Args:
      f: a function that is differentiable in reverse mode, such as a loss. Without `f`, `auto` returns a decorator.
      peak: the limit on the compiled peak in bytes, as an integer or a string such as `"8 GiB"`. The peak includes
        arguments, outputs, gradients and temporaries, as counted by `memory_analysis` of the compiled gradient. (The
        `peak_bytes` of `measure` also include the cotangent of a scalar and the compiler's constants.)
      saved: instead of `peak`, a limit on the bytes of the computed residuals.
      argnums: the arguments that get a gradient: an integer or a sequence of integers, as for `jax.grad`, or None for
        all floating-point arguments. The backward pass computes no gradient for the other arguments, such as a batch of
        images, and differentiating with respect to them raises an error. The integers are indices of the positional
        parameters of `f`, even if a call passes them by keyword. Keyword-only arguments get a gradient only if
        `argnums` is None.
      target: the device to compile for, as for `measure`.
      compiles: the maximum number of candidates to compile.
      cost: the cost to minimize, as for `plan`: by default, the recomputed FLOPs and transcendentals; `"seconds"` for
        the time on `device` by a roofline; or a function of an `Equation`, which is called with equations of the
        forward pass.
      device: the device for `cost="seconds"`: a name such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`.
      host: the host memory to offload to, such as `HostOffload(bandwidth=16e9)`. `auto` may then offload residuals that
        loops stack, if the stack has at least 1 MiB, and minimizes the estimated time, which includes the time spent
        waiting for transfers. If neither `cost` nor `device` is given, the estimate uses the rates of the target. This
        option needs a function with a loop, and a target other than a CPU if the limit is on the peak.

    Returns:
      A callable like `f`. Its `.plan(*args)` method returns the plan, an `Auto`, which you can inspect or save. The
      callable supports `jax.jit`, `jax.vmap`, forward mode and second derivatives.

    Raises:
      PlanError: immediately, if an option is not valid. During planning, if the limit cannot be met (the message then
        gives the smallest peak that was reached); if `f` changes the state of an object, such as a module of Flax's
        nnx, or closes over a traced value; if `host` is given and no residual of `f` can be offloaded; if `f` is a
        training step, which takes gradients itself; or if `argnums` is out of range. During differentiation, if you
        differentiate with respect to an argument that is not in `argnums`, if you differentiate only some outputs and
        the others depend on a custom rule whose gradient is not 0 for cotangents of 0, or if forward mode or a second
        derivative would run a callback of `f` twice.
      TraceError, TargetError: during planning, as for `measure`.

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
    check_count(compiles, "compiles")
    check_argnums(argnums)
    limit = budget_bytes(given, name)
    check_target(target)
    counted = (
        resolve_cost(cost, device) if host is None else _offload_device(host, cost, device, target, peak is not None)
    )
    options = SearchOptions(limit, peak is not None, target, compiles, counted, host)
    make = functools.partial(AutoFunction, argnums=argnums, options=options)
    return make if f is None else make(f)


def planned_in_step(loss: Callable[..., Any], peak: int, target: str, step: str) -> Callable[..., Any]:
    """Return a loss that a step differentiates, with a plan of `auto` for its gradient.

    Values of the step that the loss closes over become arguments without a gradient.

    Args:
      loss: the loss. All its floating-point arguments get a gradient.
      peak: the limit on the compiled peak of its gradient, in bytes.
      target: the device to compile for.
      step: the name of the step, for messages.
    """

    def planned(once: CalledOnce, leaves: Sequence[Any]) -> Any:
        called, values = with_outer_values(once, leaves, "auto")
        called.__name__ = f"the loss of {step}"
        own = range(len(values) - len(leaves), len(values))
        for i, value in enumerate(values[: own.start]):
            if jnp.issubdtype(jax.typeof(value).dtype, jnp.inexact):
                values[i] = without_gradient(value, functools.partial(_closed_over_text, loss, value, step))
        argnums = tuple(i for i in own if jnp.issubdtype(jax.typeof(values[i]).dtype, jnp.inexact))
        options = SearchOptions(peak, True, target, SETTINGS.compiles, work, None)
        return AutoFunction(called, argnums, options)(*values)

    return replace_calls(loss, planned)


def _closed_over_text(loss: Callable[..., Any], value: Any, step: str) -> str:
    """Return the message for a gradient with respect to a value that the loss of a step closes over."""
    name = name_in_closure(loss, value)
    which = f"`{name}`, which" if name else f"a value of type {type_text(jax.typeof(value))}, which"
    return (
        f"the loss of {step} was planned without a gradient for {which} it closes over, and this call differentiates "
        f"{step} with respect to it. Make it an argument that {step} differentiates the loss with respect to, or wrap "
        f"it: jax.lax.stop_gradient({name or 'value'})."
    )


def _progress_note(search: ScheduleSearch, limit: int) -> str:
    """Return a sentence about the candidates compiled when a search was interrupted, and about how to use the best
    one.
    """
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
    """Return the device whose rates make transfers and recompute comparable."""
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
            "host= needs a cost in seconds, to weigh transfers against recompute. Add cost='seconds' and a device, "
            "such as device='tpu v5e'."
        )
    return cast(Device, resolve_cost(cost, device))

"""The live bytes after each equation of the forward and the backward pass, from the trace."""

from collections.abc import Callable

from rematscope.ir.gc_pause import gc_paused
from rematscope.memory.live_ranges import LiveRanges
from rematscope.memory.timeline import Timeline
from rematscope.render.progress import progress_message
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import estimate_time, spent_by
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.step import Step
from rematscope.tracing.trace import Trace, trace


@with_own_options
def liveness(f: Callable, *args, device: Device | str | None = None, **kwargs) -> Timeline:
    """Count the bytes that are live after each equation of `f`'s forward and backward pass.

    A value is live from the equation that defines it to its last use. The operation that uses a value last can write
    its result into that value's buffer, as in XLA's elementwise operations; a matmul needs both buffers. Names and
    barriers need no buffer. The count assumes no fusion, so it includes values that XLA never writes to memory.

    A training step, which takes its own gradient, is traced as written. Three kinds of its arguments are listed
    separately: parameters (with respect to which the step differentiates), optimizer_state (read and returned only by
    the update), and arguments (the rest, such as the batch). A result that reuses the buffer of a donated argument adds
    no bytes.

    The bytes are listed by kind:

    * arguments: the arguments of `f` and the arrays that it closes over. They belong to the caller and stay live.
      Literals take no bytes.
    * residuals: values that the forward pass computes and saves. They are live until their last use in the backward
      pass.
    * recomputed: values that the backward pass computes without the cotangent (its `R` and `D` equations).
    * temporaries: all other values, such as cotangents. Gradients are live until the end. The outputs of `f` are live
      until the boundary between the two passes, where the caller receives them.

    On a mesh, the bytes are those of one device; see `Trace.unresolved_shardings` for values whose sharding the
    compiler decides.

    Values in host memory do not count as live on the device, whether an offloading policy moved them there or the
    caller passed them there. They have their own row in the table and a dotted line in the plot.

    The body of a loop appears once, because every iteration needs the same memory. An array that a loop stacks is live
    from the start of the loop, when XLA allocates it. The branches of a `cond` are listed one after the other. After
    each branch, only its result stays live.

    Args:
      f: a function that is differentiable in reverse mode, or a training step. It is traced, not run.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      device: the name of a device such as `"tpu v5e"`, a `Device`, or the result of `calibrate()`. If given, the
        view also shows the time of each operation and plots the bytes over time; see `estimate_time`.

    Returns:
      A timeline with one sample for the start, for each forward equation, for the boundary, for each backward equation,
      and for the end.

    Raises:
      TraceError: as for `trace`.
      TargetError: if `device` is not known.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import liveness
      >>> timeline = liveness(lambda x: jnp.sin(jnp.sin(x)), jnp.ones(1024))
      >>> timeline.peak_bytes, timeline.peak.residuals
      (16384, 4096)
      >>> print(timeline)
      <lambda>: bytes live after each equation
      forward ▂▄▆███│▆▄▄ backward
      peak 16 KiB, forward, step 3 of 8: c = sin(a)...
    """
    __tracebackhide__ = True
    rates = None if device is None else device_called(device)
    passes = trace(f, *args, **kwargs)
    with progress_message("counting live bytes"):
        return live_bytes(passes, rates)


@gc_paused()
def live_bytes(passes: Trace, device: Device | None = None) -> Timeline:
    """Return the timeline of both passes, or of the training step that contains them; see `liveness`."""
    lives = _passes_live_ranges(passes) if passes.step is None else _step_live_ranges(passes, passes.step)
    title = f"{passes.function}{passes.mode_text}: bytes live{passes.per_device_text} after each equation"
    if device is None:
        return Timeline(title, lives.samples({}), lives.boundary)
    return Timeline(title, lives.samples(spent_by(passes, device)), lives.boundary, estimate_time(passes, device))


def _passes_live_ranges(passes: Trace) -> LiveRanges:
    lives = LiveRanges()
    given = {*passes.forward.inputs, *passes.forward.constants, *passes.backward.constants}
    lives.define(given, "arguments")
    lives.steps.append("start")
    lives.program(passes.forward)
    lives.boundary = len(lives.steps)
    lives.steps.append("boundary")
    for value in passes.forward.outputs:
        lives.use(value, lives.boundary + 1)
    lives.define(passes.cotangents)
    lives.program(passes.backward)
    end = len(lives.steps)
    lives.steps.append("end")
    for value in [*given, *passes.backward.outputs]:
        lives.use(value, end + 1)
    lives.mark_residuals(passes.residuals)
    return lives


def _step_live_ranges(passes: Trace, step: Step) -> LiveRanges:
    program = step.program
    lives = LiveRanges(step.shown.cotangents)
    lives.define([*program.inputs, *program.constants], "arguments")
    lives.kinds.update(dict.fromkeys(step.parameters, "parameters"))
    lives.kinds.update(dict.fromkeys(step.state, "optimizer_state"))
    lives.steps.append("start")
    lives.program(program)
    for result, argument in step.aliased.items():
        lives.overwrite(argument, result)
    end = len(lives.steps)
    lives.steps.append("end")
    for value in [*program.inputs, *program.constants, *program.outputs]:
        lives.use(value, end + 1)
    for gradient in step.gradients:
        for value in gradient.gradients:
            lives.set_kind(value, "gradients")
    lives.mark_residuals(passes.residuals)
    return lives

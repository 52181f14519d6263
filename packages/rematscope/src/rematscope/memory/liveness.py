"""Bytes live after each equation of the forward and then of the backward pass, from the trace alone."""

from collections.abc import Callable

from rematscope.ir.garbage import collected_later
from rematscope.memory.lives import Lives
from rematscope.memory.timeline import Timeline
from rematscope.render.progress import working
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import seconds_of, spent_by
from rematscope.tracing.arguments import with_own_options
from rematscope.tracing.step import Step
from rematscope.tracing.trace import Passes, trace


@with_own_options
def liveness(f: Callable, *args, device: Device | str | None = None, **kwargs) -> Timeline:
    """Tells how many bytes are live after each equation of `f`'s forward and then of its backward pass.

    A value takes its bytes from the equation that makes it until the last one that reads it. There its room is free for
    the result, as XLA reuses it in elementwise operations; a matrix product needs both for as long as it runs. Names
    and barriers make nothing. Nothing is fused: a value that XLA never writes to memory counts here.

    A training step, which takes a gradient itself, is looked at as it stands. Its arguments stand apart: parameters are
    what it takes the gradient for, optimizer_state is what only its update reads and returns anew, arguments the rest,
    the batch for one. Results of its update that take a donated argument's room take nothing more.

    * arguments, with the arrays that `f` closes over, are the caller's and stay. Literals take nothing.
    * residuals that the forward pass computed live until their last use in the backward pass.
    * recomputed is what the backward pass makes without the cotangent: its `R` and `L` equations.
    * other: temporaries, cotangents, gradients until the end, and `f`'s outputs until the turn, when the caller gets
      them.

    On a mesh these are the bytes of one device; see `Passes.unplaced` for what only the compiler places there.

    What is in the host's memory, moved there by an offloading policy or given there, takes nothing of the device's, and
    stands in a row, and a dotted line, of its own.

    A loop's body stands in the row of steps once, for every iteration needs the same room. An array that a loop stacks
    is there whole from the loop's start, since XLA allocates it so; what is stacked goes straight into it. Each branch
    of a `cond` stands after the one before, and leaves nothing behind but the result.

    Args:
      f: a function that is differentiable in reverse mode. It is not run.
      *args, **kwargs: its arguments, as for `trace`.
      device: also says how long each operation takes, and draws the bytes over time: the name of a device such as
        `"tpu v5e"`, a `Device`, or `calibrate()`; see `seconds_of`.

    Returns:
      A timeline whose moments are the start, each forward equation, the turn, each backward equation and the end.

    Raises:
      TraceError: as `trace` does.
      TargetError: if there are no rates for the device.

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
    with working("counting live bytes"):
        return live_bytes(passes, rates)


@collected_later()
def live_bytes(passes: Passes, device: Device | None = None) -> Timeline:
    """The timeline of two passes, or of the step that they stand in; see `liveness`."""
    lives = _of_passes(passes) if passes.step is None else _of_step(passes, passes.step)
    title = f"{passes.function}: bytes live{passes.where} after each equation"
    if device is None:
        return Timeline(title, lives.moments({}), lives.turn)
    return Timeline(title, lives.moments(spent_by(passes, device)), lives.turn, seconds_of(passes, device))


def _of_passes(passes: Passes) -> Lives:
    lives = Lives()
    given = {*passes.forward.inputs, *passes.forward.constants, *passes.backward.constants}
    lives.make(given, "arguments")
    lives.steps.append("start")
    lives.program(passes.forward)
    lives.turn = len(lives.steps)
    lives.steps.append("turn")
    for value in passes.forward.outputs:
        lives.read(value, lives.turn + 1)
    lives.make(passes.cotangents)
    lives.program(passes.backward)
    end = len(lives.steps)
    lives.steps.append("end")
    for value in [*given, *passes.backward.outputs]:
        lives.read(value, end + 1)
    lives.keep(passes.residuals)
    return lives


def _of_step(passes: Passes, step: Step) -> Lives:
    program = step.program
    lives = Lives(step.shown.cotangents)
    lives.make([*program.inputs, *program.constants], "arguments")
    lives.kinds.update(dict.fromkeys(step.parameters, "parameters"))
    lives.kinds.update(dict.fromkeys(step.state, "optimizer_state"))
    lives.steps.append("start")
    lives.program(program)
    for result, argument in step.aliased.items():
        lives.overwrite(argument, result)
    end = len(lives.steps)
    lives.steps.append("end")
    for value in [*program.inputs, *program.constants, *program.outputs]:
        lives.read(value, end + 1)
    for gradient in step.gradients:
        for value in gradient.gradients:
            lives.rename(value, "gradients")
    lives.keep(passes.residuals)
    return lives

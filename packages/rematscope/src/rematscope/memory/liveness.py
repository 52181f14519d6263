"""Bytes live after each equation of the forward and then of the backward pass, from the trace alone."""

from collections.abc import Callable

from rematscope.memory.lives import Lives
from rematscope.memory.timeline import Timeline
from rematscope.tracing.step import Step
from rematscope.tracing.trace import Passes, trace


def liveness(f: Callable, *args, **kwargs) -> Timeline:
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

    What is in the host's memory, moved there by an offloading policy or given there, takes nothing.

    A loop's body stands in the row of steps once, for every iteration needs the same room. An array that a loop stacks
    is there whole from the loop's start, since XLA allocates it so; what is stacked goes straight into it. Each branch
    of a `cond` stands after the one before, and leaves nothing behind but the result.

    Args:
      f: a function that is differentiable in reverse mode. It is not run.
      *args, **kwargs: its arguments, as for `trace`.

    Returns:
      A timeline whose moments are the start, each forward equation, the turn, each backward equation and the end.

    Raises:
      TraceError: as `trace` does.

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
    return live_bytes(trace(f, *args, **kwargs))


def live_bytes(passes: Passes) -> Timeline:
    """The timeline of two passes, or of the step that they stand in; see `liveness`."""
    if passes.step is not None:
        return _step_bytes(passes, passes.step)
    lives = Lives()
    given = {*passes.forward.inputs, *passes.forward.constants, *passes.backward.constants}
    lives.make(given, "arguments")
    lives.steps.append("start")
    lives.program(passes.forward)
    turn = len(lives.steps)
    lives.steps.append("turn")
    for value in passes.forward.outputs:
        lives.read(value, turn + 1)
    lives.make(passes.cotangents)
    lives.program(passes.backward)
    end = len(lives.steps)
    lives.steps.append("end")
    for value in [*given, *passes.backward.outputs]:
        lives.read(value, end + 1)
    lives.keep(passes.residuals)
    return Timeline(f"{passes.function}: bytes live{passes.where} after each equation", lives.moments(), turn)


def _step_bytes(passes: Passes, step: Step) -> Timeline:
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
    return Timeline(f"{passes.function}: bytes live{passes.where} after each equation", lives.moments(), lives.turn)

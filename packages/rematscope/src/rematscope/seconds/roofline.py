"""The time of each operation, estimated by a roofline (Williams, Waterman and Patterson, CACM 2009).

The time of an operation is the maximum of its arithmetic time and its memory time, plus the time for sending bytes over
links, in a ring over one axis (`Device.ring`). Operations run one after the other. Compilers fuse elementwise
operations, casts, broadcasts and selections into the operations of these kinds, and into the reductions, that read
their results. So a fused operation reads only arrays that are in memory, and writes its result only if an operation
that is not fused, such as a matmul, reads it. The arrays in memory are the arguments and the results of matmuls,
reductions, sorts and other operations that are not fused.

A recomputed operation has the same memory traffic as the operation in the forward pass, so the other operations of the
backward pass take the same time whatever is saved.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from rematscope.errors import TraceError
from rematscope.ir import roles
from rematscope.ir.cost import Cost, cost_of
from rematscope.ir.primitives import (
    FUSED_ATTENTION,
    KERNELS,
    LINEAR_ALGEBRA,
    MATMULS,
    MOVES_FUSED_ONCE,
    REDUCTIONS,
    UPDATES,
)
from rematscope.ir.program import BOOKKEEPING, Equation, Literal, Program, Value
from rematscope.render.units import seconds_text
from rematscope.seconds.devices import Device, device_called
from rematscope.tracing.arguments import type_description
from rematscope.tracing.trace import Trace, programs_of, whole_cost

_CONTRACTIONS = MATMULS | FUSED_ATTENTION

# Operations that are not fused, in addition to matmuls, reductions and collectives. A primitive that the table does not
# list, such as a library's kernel, is not fused either.
_MATERIALIZES = KERNELS | LINEAR_ALGEBRA | UPDATES | MOVES_FUSED_ONCE


@dataclasses.dataclass(frozen=True)
class TimeEstimate:
    """The time in seconds of the forward and the backward pass on a device, estimated by a roofline.

    Attributes:
      device: the name of the device.
      forward, backward: the time of each pass; for a training step, summed over all microbatches; on a mesh, per
        device.
      recompute: the time of the recomputed operations, a part of `backward`.
      deferred_forward: the time of the deferred operations, a part of `backward`. These operations do not depend on the
        cotangent and could run in the forward pass.
      uncounted: the primitives whose FLOPs are not known; only their memory traffic counts.
      update: the time of the rest of a training step, such as the optimizer update; 0 for any other function.
    """

    device: str
    forward: float
    backward: float
    recompute: float
    deferred_forward: float
    uncounted: frozenset[str]
    update: float = 0.0

    @property
    def step(self) -> float:
        """The time of both passes in seconds; for a training step, the time of the whole step."""
        return self.forward + self.backward + self.update

    @property
    def recompute_fraction(self) -> float:
        """The recompute time as a fraction of `step`, from 0 to 1."""
        return self.recompute / self.step if self.step else 0.0

    @property
    def recompute_texts(self) -> list[str]:
        """The recompute time and its percentage of `step`, as strings such as `5.58 ms` and `9.3 %`."""
        if not self.recompute:
            return ["0 s", "0 %"]
        return [seconds_text(self.recompute), f"{100 * self.recompute_fraction:.1f} %"]

    def __str__(self) -> str:
        again, share = self.recompute_texts
        again = f"of which recompute {again} ({share})" if self.recompute else "without recompute"
        what = "the step takes" if self.update else "both passes take"
        return f"Estimated by a roofline of {self.device}: {what} {seconds_text(self.step)}, {again}."


def estimate_time(passes: Trace, device: Device | str) -> TimeEstimate:
    """Estimate the time that both passes take on a device, and how much of it is recompute.

    For a training step, the estimate covers the whole step: every microbatch, every gradient and the update.

    Args:
      passes: the trace of the function, as returned by `trace`.
      device: the name of a device such as `"tpu v5e"` or `"h100"`, a `Device`, or the result of `calibrate()`.

    Raises:
      TraceError: if `passes` is not a `Trace`.
      TargetError: if `device` is not known.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import estimate_time, trace
      >>> f = jax.checkpoint(lambda w, x: jnp.sin(w @ x).sum())
      >>> shapes = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16), jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)
      >>> found = estimate_time(trace(f, *shapes), "tpu v5e")
      >>> f"{1e3 * found.recompute:.2f} ms of {1e3 * found.step:.2f}, {found.recompute_fraction:.0%}"  # 1 matmul of 4
      '5.58 ms of 23.14, 24%'
    """
    if not isinstance(passes, Trace):
        raise TraceError(
            f"estimate_time needs the result of trace, not {type_description(passes)}. Trace the function first: "
            "estimate_time(trace(f, …), device)."
        )
    rates = device_called(device)
    spent = spent_by(passes, rates)
    forward, backward = (sum(spent.get(e, 0.0) for e, _ in p.walk()) for p in (passes.forward, passes.backward))
    again, late = (sum(s for e, s in spent.items() if e.role == role) for role in (roles.RECOMPUTED, roles.DEFERRED))
    rest = 0.0 if passes.step is None else max(0.0, sum(spent.values()) - forward - backward)
    return TimeEstimate(rates.name, forward, backward, again, late, whole_cost(passes).uncounted, rest)


def spent_by(passes: Trace, device: Device) -> dict[Equation, float]:
    """Return the seconds of all runs of each equation; for a training step, of the whole step."""
    each = seconds_in(passes, device)
    return {equation: each(equation) * times for program in programs_of(passes) for equation, times in program.walk()}


def seconds_in(passes: Trace, device: Device) -> Callable[[Equation], float]:
    """Return a function that gives the seconds of one run of an equation of a trace."""
    outputs = passes.forward.outputs[: len(passes.cotangents)]
    around = None if passes.step is None else passes.step.program
    moved = {} if around is None else _bytes_moved(around, set(around.outputs))
    moved |= _bytes_moved(passes.forward, set(outputs))
    moved |= _bytes_moved(passes.backward, set(passes.backward.outputs))
    makers = {value: equation for equation, _ in passes.forward.walk() for value in equation.outputs}

    def seconds(equation: Equation) -> float:
        first = passes.forward_value_of.get(equation.outputs[0]) if equation.outputs else None
        as_before = makers.get(first, equation) if first is not None and equation.role == roles.RECOMPUTED else equation
        return roofline(device, equation, moved.get(as_before, moved.get(equation, 0)))

    return seconds


def seconds_alone(program: Program, device: Device) -> Callable[[Equation], float]:
    """Return a function that gives the seconds of one run of an equation of one program."""
    moved = _bytes_moved(program, set(program.outputs))
    return lambda equation: roofline(device, equation, moved.get(equation, 0))


def roofline(device: Device, equation: Equation, moved: int) -> float:
    """Return the seconds of one run of an equation that moves so many bytes; 0 for loops and branches themselves."""
    if equation.bodies or equation.primitive in BOOKKEEPING:
        return 0.0
    cost: Cost = cost_of(equation)
    if equation.primitive in _CONTRACTIONS:
        arithmetic = cost.flops / device.rate(equation.inputs[0].dtype)
    else:
        arithmetic = cost.flops / device.arithmetic + cost.transcendentals / device.transcendentals
    sent = cost.link_bytes / device.ring() if cost.link_bytes and device.link else 0.0
    return max(arithmetic, moved / device.bandwidth) + sent


def _bytes_moved(program: Program, kept: set[Value]) -> dict[Equation, int]:
    """Return the bytes that each equation moves through memory in one run.

    Args:
      kept: values that are written in any case.
    """
    makers: dict[Value, Equation] = {}
    in_memory = set(kept)
    equations = [equation for equation, _ in program.walk()]
    for equation in equations:
        makers.update(dict.fromkeys(equation.outputs, equation))
        if _reads_memory(equation):
            in_memory.update(equation.inputs)
    _add_bodies(program, in_memory)

    def size(value: Any) -> int:
        return value.device_bytes if hasattr(value.aval, "dtype") else 0

    def reads(value: Value, reader: Equation) -> bool:
        maker = makers.get(value)
        return not isinstance(value, Literal) and (maker is None or _is_unfused(maker) or _reads_memory(reader))

    moved = {}
    for equation in equations:
        read = sum(size(value) for value in dict.fromkeys(equation.inputs) if reads(value, equation))
        if equation.primitive in ("gather", "dynamic_slice"):  # they read only the elements that they return
            read = sum(map(size, equation.outputs)) + sum(map(size, equation.inputs[1:]))
        written = sum(size(value) for value in equation.outputs if _is_unfused(equation) or value in in_memory)
        moved[equation] = read + written
    return moved


def _add_bodies(program: Program, in_memory: set[Value]) -> None:
    """Add the inputs and results of loops and branches to the values in memory."""
    for equation in program.all_equations():
        if equation.bodies:
            in_memory.update(equation.inputs)
            in_memory.update(v for body in equation.bodies for v in body.outputs)


def _is_unfused(equation: Equation) -> bool:
    return equation.primitive in REDUCTIONS or _reads_memory(equation)


def _reads_memory(equation: Equation) -> bool:
    return equation.primitive in _CONTRACTIONS or equation.primitive in _MATERIALIZES or equation.devices > 1

"""Bytes live after each equation of the forward and then of the backward pass, from the trace alone."""

from collections.abc import Callable, Collection, Iterable

from rematscope.ir import roles
from rematscope.ir.pretty_print import code
from rematscope.ir.program import BOOKKEEPING, CASTS, Equation, Literal, Program, Value
from rematscope.memory.timeline import BANDS, Moment, Timeline
from rematscope.tracing.residuals import Residual
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
    lives = _Lives()
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
    lives = _Lives(step.shown.cotangents)
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


class _Lives:
    """When each array is made and last read, over the steps of both programs or of one."""

    def __init__(self, cotangents: Collection[Value] = ()):
        self.cotangents = cotangents  # at the first of them a step's backward pass begins
        self.turn = 0
        self.steps: list[Equation | str] = []
        self.kinds: dict[Value, str] = {}
        self._made: dict[Value, int] = {}
        self._last: dict[Value, int] = {}
        self._same: dict[Value, Value] = {}

    def array(self, value: Value) -> Value:
        """The value that first stood for the array behind `value`."""
        while value in self._same:
            value = self._same[value]
        return value

    def make(self, values: Iterable[Value], kind: str = "other", step: int | None = None) -> None:
        for value in values:
            self.kinds[value] = kind
            self._made[value] = len(self.steps) if step is None else step

    def read(self, value: Value, step: int) -> None:
        if not isinstance(value, Literal):
            value = self.array(value)
            self._last[value] = max(step, self._last.get(value, 0))

    def rename(self, value: Value, kind: str) -> None:
        """Says what a value is that nothing has been said of."""
        if not isinstance(value, Literal) and self.kinds.get(array := self.array(value)) == "other":
            self.kinds[array] = kind

    def keep(self, residuals: Iterable[Residual]) -> None:
        for residual in residuals:
            self.rename(residual.value, "residuals")

    def overwrite(self, argument: Value, result: Value) -> None:
        """A result takes an argument's room if that is read no more when the result is made."""
        array = self.array(result)
        if self._made.get(array, 0) >= self._last.get(argument, 0) > 0:
            del self._made[array]

    def program(self, program: Program) -> None:
        for equation in program.equations:
            if not self.turn and equation.primitive == "name" and equation.outputs[0] in self.cotangents:
                self.turn = len(self.steps)
                self.steps.append("turn")
            if equation.primitive == "name" or equation.primitive in CASTS:
                if not isinstance(equation.inputs[0], Literal):
                    self._same[equation.outputs[0]] = self.array(equation.inputs[0])
            elif equation.primitive in BOOKKEEPING:
                continue
            elif equation.primitive == "cond":
                self._cond(equation)
            elif equation.primitive == "shard_map":
                self._shard_map(equation)
            elif equation.bodies:
                self._loop(equation)
            else:
                self._run(equation)

    def _run(self, equation: Equation) -> None:
        step = len(self.steps)
        for value in equation.inputs:
            self.read(value, step)
        self.make(equation.outputs, "recomputed" if equation.role in (roles.RECOMPUTED, roles.LATE) else "other")
        self.steps.append(equation)

    def _cond(self, equation: Equation) -> None:
        for body in equation.bodies:
            self.program(body)
            for value in body.outputs:
                self.read(value, len(self.steps) - 1)
        self._run(equation)

    def _loop(self, equation: Equation) -> None:
        body, carries = equation.bodies[-1], equation.carries
        start = len(self.steps)
        self.steps.append(equation)
        for i, value in enumerate(equation.initial):
            self.read(value, start)
            for condition in equation.bodies[:-1]:
                self._same[condition.inputs[i]] = body.inputs[i]
            if body.outputs[i] is body.inputs[i] and not isinstance(value, Literal):
                self._same[body.inputs[i]] = self.array(value)
        own = [v for v in body.inputs if v not in self._same]
        self.make(own, step=start)
        for program in equation.bodies:
            self.program(program)
        end = len(self.steps) - 1
        for value in (*equation.inputs[: equation.first_carry], *equation.stacked_inputs, *body.outputs[:carries]):
            self.read(value, end)

        def kind(value):
            found = self.kinds.get(self.array(value), "other")
            return found if found == "recomputed" else "other"

        for carry, value in zip(body.inputs, body.outputs[:carries], strict=False):
            if carry in own:
                self.kinds[carry] = kind(value)
        for result, value in zip(equation.outputs, body.outputs, strict=True):
            if result in equation.outputs[carries:]:
                self.make([result], kind(value), start)
            elif isinstance(value, Literal):
                self.make([result], step=end)
            else:
                self._same[result] = self.array(value)

    def _shard_map(self, equation: Equation) -> None:
        """A device's part of an array is what it has of it already, unless the array is divided in another way."""
        (body,) = equation.bodies
        self.steps.append(equation)
        for array, part in zip(equation.inputs, body.inputs, strict=True):
            if not isinstance(array, Literal) and array.placement.shape == part.placement.shape:
                self._same[part] = self.array(array)
            else:
                self.read(array, len(self.steps) - 1)
                self.make([part], step=len(self.steps) - 1)
        self.program(body)
        for result, value in zip(equation.outputs, body.outputs, strict=True):
            if isinstance(value, Literal):
                self.make([result])
            else:
                self._same[result] = self.array(value)

    def moments(self) -> list[Moment]:
        size = len(self.steps)
        changes = {band: [0] * (size + 1) for band in BANDS}
        for value, made in self._made.items():
            if value.memory == "device":
                band = self.kinds[value]
                changes[band][made] += value.device_bytes
                changes[band][max(made, self._last.get(value, made))] -= value.device_bytes
        now = dict.fromkeys(BANDS, 0)
        found = []
        for place, step in enumerate(self.steps):
            now = {band: now[band] + changes[band][place] for band in BANDS}
            known = (step, None, "") if isinstance(step, str) else (_text(step), step.source, step.module)
            operation, source, module = known
            found.append(Moment(operation, source, module=module, **now))
        return found


def _text(equation: Equation) -> str:
    match equation.primitive:
        case "scan":
            return f"for {equation.index} in range({equation.length})"
        case "while":
            return "while"
        case "shard_map":
            return "on each device"
        case "cond":
            return f"{', '.join(v.name for v in equation.outputs)} = switch({equation.inputs[0].name})"
    return code(equation)

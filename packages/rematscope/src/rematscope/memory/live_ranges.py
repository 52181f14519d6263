"""The live range of each array, from its definition to its last use, and the bytes live at each step."""

from collections.abc import Collection, Iterable, Mapping

from rematscope.ir import roles
from rematscope.ir.pretty_print import code
from rematscope.ir.program import BOOKKEEPING, RENAMES, Equation, Literal, Program, Value
from rematscope.memory.timeline import BANDS, MemorySample
from rematscope.tracing.residuals import Residual


class LiveRanges:
    """The live range of each array, over the steps of both programs or of one."""

    def __init__(self, cotangents: Collection[Value] = ()):
        self.cotangents = cotangents  # the backward pass of a training step begins at the first of them
        self.boundary = 0
        self.steps: list[Equation | str] = []
        self.kinds: dict[Value, str] = {}
        self._made: dict[Value, int] = {}
        self._last: dict[Value, int] = {}
        self._same: dict[Value, Value] = {}

    def array(self, value: Value) -> Value:
        """Return the value that first denoted the array of `value`."""
        while value in self._same:
            value = self._same[value]
        return value

    def alias(self, value: Value, other: Value) -> None:
        """Record that two values denote one array; both passes of a schedule may record the same values."""
        if (array := self.array(other)) is not value:
            self._same[value] = array

    def define(self, values: Iterable[Value], kind: str = "temporaries", step: int | None = None) -> None:
        """Record that values of this kind are defined now, or at a step."""
        for value in values:
            self.kinds[value] = kind
            self._made[value] = len(self.steps) if step is None else step

    def use(self, value: Value, step: int) -> None:
        if not isinstance(value, Literal):
            value = self.array(value)
            self._last[value] = max(step, self._last.get(value, 0))

    def set_kind(self, value: Value, kind: str) -> None:
        """Set the kind of a value that has none yet."""
        if not isinstance(value, Literal) and self.kinds.get(array := self.array(value)) == "temporaries":
            self.kinds[array] = kind

    def mark_residuals(self, residuals: Iterable[Residual]) -> None:
        """Set the kind of residuals."""
        for residual in residuals:
            self.set_kind(residual.value, "residuals")

    def overwrite(self, argument: Value, result: Value) -> None:
        """Let a result reuse an argument's buffer if the argument is not used after the result is defined."""
        array = self.array(result)
        if self._made.get(array, 0) >= self._last.get(argument, 0) > 0:
            del self._made[array]

    def program(self, program: Program) -> None:
        """Add a step for each equation of a program."""
        for equation in program.equations:
            if not self.boundary and equation.primitive == "name" and equation.outputs[0] in self.cotangents:
                self.boundary = len(self.steps)
                self.steps.append("boundary")
            if equation.primitive in RENAMES:
                if not isinstance(equation.inputs[0], Literal):
                    self.alias(equation.outputs[0], equation.inputs[0])
            elif equation.primitive in BOOKKEEPING:
                continue
            elif equation.primitive == "cond":
                self._add_cond(equation)
            elif equation.primitive == "shard_map":
                self._add_shard_map(equation)
            elif equation.bodies:
                self._add_loop(equation)
            else:
                self._add_operation(equation)

    def _add_operation(self, equation: Equation) -> None:
        step = len(self.steps)
        for value in equation.inputs:
            self.use(value, step)
        self.define(
            equation.outputs, "recomputed" if equation.role in (roles.RECOMPUTED, roles.DEFERRED) else "temporaries"
        )
        self.steps.append(equation)

    def _add_cond(self, equation: Equation) -> None:
        for body in equation.bodies:
            self.program(body)
            for value in body.outputs:
                self.use(value, len(self.steps) - 1)
        self._add_operation(equation)

    def _add_loop(self, equation: Equation) -> None:
        body, carries = equation.bodies[-1], equation.carries
        start = len(self.steps)
        self.steps.append(equation)
        for i, value in enumerate(equation.initial):
            self.use(value, start)
            for condition in equation.bodies[:-1]:
                self._same[condition.inputs[i]] = body.inputs[i]
            if body.outputs[i] is body.inputs[i] and not isinstance(value, Literal):
                self.alias(body.inputs[i], value)
        own = [v for v in body.inputs if v not in self._same]
        self.define(own, step=start)
        self._note_slices([v for v in body.inputs[carries:] if v in own])
        for program in equation.bodies:
            self.program(program)
        end = len(self.steps) - 1
        for value in (*equation.inputs[: equation.first_carry], *equation.stacked_inputs, *body.outputs[:carries]):
            self.use(value, end)

        def kind(value):
            found = self.kinds.get(self.array(value), "temporaries")
            return found if found == "recomputed" else "temporaries"

        for carry, value in zip(body.inputs, body.outputs[:carries], strict=False):
            if carry in own:
                self.kinds[carry] = kind(value)
        for result, value in zip(equation.outputs, body.outputs, strict=True):
            if result in equation.outputs[carries:]:
                self.define([result], kind(value), start)
            elif isinstance(value, Literal):
                self.define([result], step=end)
            else:
                self.alias(result, value)

    def _note_slices(self, slices: Iterable[Value]) -> None:
        """Record the slices that a loop's body reads as live from the start of the body."""

    def _add_shard_map(self, equation: Equation) -> None:
        """Add the operations of one device; its shard of an array is no copy unless the array is resharded."""
        (body,) = equation.bodies
        self.steps.append(equation)
        for array, part in zip(equation.inputs, body.inputs, strict=True):
            if not isinstance(array, Literal) and array.placement.shape == part.placement.shape:
                self.alias(part, array)
            else:
                self.use(array, len(self.steps) - 1)
                self.define([part], step=len(self.steps) - 1)
        self.program(body)
        for result, value in zip(equation.outputs, body.outputs, strict=True):
            if isinstance(value, Literal):
                self.define([result])
            else:
                self.alias(result, value)

    def samples(self, spent: Mapping[Equation, float]) -> list[MemorySample]:
        """Return the live bytes at each step; `spent` gives the seconds of each operation, if they are known."""
        size = len(self.steps)
        changes = {band: [0] * (size + 1) for band in (*BANDS, "host")}
        for value, made in self._made.items():
            band = self.kinds[value] if value.memory == "device" else "host"
            changes[band][made] += value.device_bytes
            changes[band][max(made, self._last.get(value, made))] -= value.device_bytes
        now = dict.fromkeys(changes, 0)
        found = []
        for place, step in enumerate(self.steps):
            now = {band: now[band] + change[place] for band, change in changes.items()}
            known = (step, None, "") if isinstance(step, str) else (_step_text(step), step.source, step.module)
            operation, source, module = known
            seconds = 0.0 if isinstance(step, str) else spent.get(step, 0.0)
            found.append(MemorySample(operation, source, module=module, seconds=seconds, **now))
        return found


def _step_text(equation: Equation) -> str:
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

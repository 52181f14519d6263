"""Unroll scans as JAX and XLA do.

The option `unroll` of a scan is the number of its iterations per iteration of the compiled loop (JAX's `_scan_impl`).
The remaining iterations follow the loop. If all iterations are unrolled, JAX emits no loop. XLA removes a loop that
runs once (`WhileLoopSimplifier`).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import jax

from rematscope.ir.program import Equation, Literal, Placement, Program, Value
from rematscope.memory.xla_estimate.broadcasts import value_like


def unroll_scan(scan: Equation) -> list[Equation]:
    """Return the equations that a scan is compiled to; the scan itself if it is not unrolled."""
    width = max(1, scan.params.get("unroll", 1))
    if not stays_a_loop(scan.length, width):
        return _Iterations(scan).written_out()
    trips, rest = divmod(scan.length, width)
    return [scan] if width == 1 else _Iterations(scan).in_loop(trips, width, rest)


def stays_a_loop(length: int, unroll: int) -> bool:
    """Return whether a scan is a loop in the compiled program."""
    return length > max(1, unroll)


class _Iterations:
    """Unrolls iterations of a scan."""

    def __init__(self, scan: Equation):
        self.scan = scan
        self.equations: list[Equation] = []
        (self._body,) = scan.bodies

    def written_out(self) -> list[Equation]:
        """Return the operations of all iterations, without a loop."""
        carries = self.scan.carries
        last, stacked = self._append_iterations(self.scan.initial, self.scan.stacked_inputs, self.scan.length)
        self._append_names(last, self.scan.outputs[:carries])
        self._append_concatenated(stacked, self.scan.outputs[carries:])
        return self.equations

    def in_loop(self, trips: int, width: int, rest: int) -> list[Equation]:
        """Return a loop each of whose iterations runs several iterations of the scan, and the remaining iterations."""
        scan, carries = self.scan, self.scan.carries
        stacks, left = list(scan.stacked_inputs), list(scan.stacked_inputs)
        if rest:
            first, then = (rest, 0) if scan.reverse else (0, trips * width)
            stacks = [self._slice_stack(v, first, trips * width) for v in stacks]
            left = [self._slice_stack(v, then, rest) for v in left]
        stacks = [self._append_operation("reshape", [v], _stack_like(v, trips, width)) for v in stacks]
        inner = _Iterations(scan)
        own = [value_like(v) for v in self._body.inputs[:carries]]
        parts = [_stack_like(v, width) for v in scan.stacked_inputs]
        last, stacked = inner._append_iterations(own, parts, width)
        results = self.scan.outputs[carries:]
        turns = [_stack_like(v, width) for v in results]
        inner._append_concatenated(stacked, turns)
        made = [value_like(v) for v in scan.outputs[:carries]]
        stacked_results = [_stack_like(v, trips, width) for v in results]
        self.equations.append(
            dataclasses.replace(
                scan,
                inputs=(*scan.inputs[: scan.first_carry + carries], *stacks),
                outputs=(*made, *stacked_results),
                bodies=(Program((*own, *parts), inner.equations, (*last, *turns)),),
                length=trips,
                params={**scan.params, "unroll": 1},
            )
        )
        flat = [_stack_like(v, trips * width) for v in results] if rest else list(results)
        for value, result in zip(stacked_results, flat, strict=True):
            self._append_operation("reshape", [value], result)
        if not rest:
            self._append_names(made, scan.outputs[:carries])
            return self.equations
        last, stacked = self._append_iterations(made, left, rest)
        self._append_names(last, scan.outputs[:carries])
        parts_of = [[*more, one] if scan.reverse else [one, *more] for one, more in zip(flat, stacked, strict=True)]
        self._append_concatenated(parts_of, results)
        return self.equations

    def _append_iterations(
        self, carried: Sequence[Value], stacks: Sequence[Value], count: int
    ) -> tuple[Sequence[Value], list[list[Value]]]:
        """Append iterations; return the carries after them, and the slices that they add to each stack."""
        found: list[list[Value]] = [[] for _ in self._body.outputs[self.scan.carries :]]
        own = self._body.inputs[self.scan.carries :]
        for iteration in reversed(range(count)) if self.scan.reverse else range(count):
            slices = [
                self._append_operation("slice", [v], value_like(part), start=iteration)
                for v, part in zip(stacks, own, strict=True)
            ]
            stands_for = dict(zip(self._body.inputs, (*carried, *slices), strict=True))
            self.equations += _copy_equations(self._body.equations, stands_for)
            outputs = [stands_for.get(v, v) for v in self._body.outputs]
            carried = outputs[: self.scan.carries]
            for values, value in zip(found, outputs[self.scan.carries :], strict=True):
                values.append(value)
        return carried, [values[::-1] for values in found] if self.scan.reverse else found

    def _slice_stack(self, stack: Value, first: int, turns: int) -> Value:
        return self._append_operation("slice", [stack], _stack_like(stack, turns), start=first, stop=first + turns)

    def _append_operation(self, primitive: str, inputs: Sequence[Value], output: Value, **params: int) -> Value:
        scan = self.scan
        self.equations.append(Equation(primitive, tuple(inputs), (output,), params, scan.eqn, role=scan.role))
        return output

    def _append_names(self, values: Iterable[Value], results: Iterable[Value]) -> None:
        for value, result in zip(values, results, strict=True):
            self._append_operation("name", [value], result)

    def _append_concatenated(self, parts: Iterable[Sequence[Value]], results: Iterable[Value]) -> None:
        for values, result in zip(parts, results, strict=True):
            self._append_operation(
                "empty" if not values else "reshape" if len(values) == 1 else "concatenate", values, result
            )


def _copy_equations(equations: Iterable[Equation], stands_for: dict[Value, Value]) -> Iterator[Equation]:
    """Yield copies of equations with new values, which are added to `stands_for`."""
    for equation in equations:
        inputs = tuple(stands_for.get(v, v) for v in equation.inputs)
        if equation.primitive == "optimization_barrier":
            inputs = outputs = tuple(v for v in inputs if not isinstance(v, Literal))
        else:
            outputs = tuple(map(value_like, equation.outputs))
            stands_for.update(zip(equation.outputs, outputs, strict=True))
        copy = equation.with_inputs(inputs)
        copy.outputs, copy.bodies = outputs, tuple(copy_program(body, stands_for) for body in equation.bodies)
        yield copy


def copy_program(body: Program, stands_for: dict[Value, Value]) -> Program:
    """Return a copy of a loop's body with new values.

    `stands_for` maps values that the body reads to their replacements. The new values are added to it.
    """
    own = tuple(map(value_like, body.inputs))
    stands_for.update(zip(body.inputs, own, strict=True))
    equations = list(_copy_equations(body.equations, stands_for))
    return Program(own, equations, tuple(stands_for.get(v, v) for v in body.outputs))


def _stack_like(value: Value, *turns: int) -> Value:
    """Return a stack of slices like another stack's, with other leading dimensions."""
    made = Value(jax.ShapeDtypeStruct((*turns, *value.shape[1:]), value.dtype), value.name)
    if (placement := value.placement).shape != value.shape:
        made.sharding = Placement((*turns, *placement.shape[1:]), placement.is_explicit)
    return made

"""How many bytes a compiler sets aside for both passes, predicted from the trace.

`rematscope.liveness` counts every value that an equation makes. A compiler writes fewer of them to memory, and needs
room for other things. What is predicted here follows from the program as `rematscope.memory.hlo_rewrites` has it, and
from rules that XLA has on every target:

* What is cheap and only read by elementwise operations and reductions is computed where it is read, and not written;
  see `rematscope.memory.fused`. It keeps what it is made of alive until then. What goes through an optimization
  barrier, into or out of a loop, or to the caller, is written.
* A slice of a stack is taken where it is first read, and what a loop stacks is written where it stays. A reshape is no
  copy, nor is a product's transposition.
* What a product, a convolution or a sort reads is there for as long as that runs. In a GPU's order, what a product
  reads is there until the next has run, for either may come first.
* An elementwise result takes the room of an operand that nobody else reads. What is scattered into, or carried round a
  loop, takes the room of what is written over, and no other's.
* Results are set aside from the start. Until they are made, others may lie in their room, but on a TPU: in a donated
  argument's, that a result takes, as soon as it is read no more.
* What is written over before all that read it have run is copied, a donated argument at the start; see
  `rematscope.memory.copies`.

What a target does in its own way is said of it in `lowered_otherwise`. A CPU's sums and maxima are a library's, with
what is around them; see `rematscope.memory.ynnpack`.

These are rules of XLA as JAX 0.11 and later have it. Before, a CPU's took more. With JAX 0.7.2 an unrolled checkpoint
is undone, for barriers went before what is equal was merged: less than half of what it takes is predicted. Of a small
language model a third less than what it takes is predicted, and of a net in bfloat16, whose products all go by float32.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rematscope.ir.primitives import MATMULS, UPDATES, VIEWS
from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.memory.allocator import FirstFit
from rematscope.memory.copies import copied, updated, with_copies
from rematscope.memory.cpu_schedule import thunk_order
from rematscope.memory.fused import (
    CAN_ALIAS_OPERAND,
    ELEMENTWISE,
    FUSES_OPERANDS,
    Fused,
    fuse,
    is_tpu,
    scattered_into,
    with_flattened,
)
from rematscope.memory.hlo_rewrites import MIXED, is_alias, rewrite_as_hlo
from rematscope.memory.live_ranges import LiveRanges
from rematscope.tracing.trace import Trace

_SELECT_AND_SCATTER = frozenset({"select_and_scatter", "select_and_scatter_add"})


def estimate_compiled_bytes(passes: Trace, target: str = "cpu") -> int:
    """Bytes that a compiler sets aside for both passes as one program, or for the step that they stand in.

    Args:
      passes: the trace. On a mesh the bytes are those of one device.
      target: what is compiled for, as of `measure`.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import trace
      >>> estimate_compiled_bytes(
      ...     trace(lambda x: jnp.sin(x), jnp.ones(1024))
      ... )  # x, its cotangent; the sine, and the gradient
      16384
    """
    step = passes.step
    if step is None:
        programs = [passes.forward, passes.backward]
        given = {*passes.forward.inputs, *passes.cotangents}
        constants = {**passes.forward.constants, **passes.backward.constants}
        returned = [*passes.outputs, *passes.backward.outputs]
    else:
        programs = [step.program]
        given, constants, returned = {*step.program.inputs}, step.program.constants, list(step.program.outputs)
    lives = _WrittenRanges(target, {} if step is None else step.aliased)
    lives.program(_one(programs, returned, target))
    results = {lives.array(v) for v in returned if not isinstance(v, Literal)}
    overwritten = {lives.array(v): argument for v, argument in step.aliased.items()} if step is not None else {}
    sizes = sum(v.device_bytes for v in (*given, *distinct_constants(constants)) if v.memory == "device")
    given |= constants.keys()
    sizes += sum(v.device_bytes for v in results - overwritten.keys() - given if v.memory == "device")
    copies = sum(v.device_bytes for v in returned if not isinstance(v, Literal) and lives.array(v) in given)
    return sizes + copies + lives.most(results - overwritten.keys(), overwritten)


def distinct_constants(constants: Mapping[Value, Any]) -> list[Value]:
    """The constants of different contents: XLA merges equal ones, however often a library makes them."""
    alike: dict[tuple[Any, ...], list[tuple[Value, Any]]] = {}
    for value, array in constants.items():
        alike.setdefault((value.shape, value.dtype), []).append((value, array))
    found: list[Value] = []
    for same in alike.values():
        contents = {_content(array) if len(same) > 1 else None: value for value, array in same}
        found += contents.values()
    return found


def _content(array: Any) -> Hashable:
    """Equal for arrays of equal bytes; another one for each array whose bytes are not at hand, such as keys."""
    try:
        return hashlib.sha256(np.asarray(array).tobytes()).digest()
    except Exception:  # whatever a library's array raises that is no plain array
        return id(array)


def estimate_temporary_bytes(programs: Sequence[Program], returned: Sequence[Value], target: str = "cpu") -> int:
    """The same without what is given and returned, of programs that run one after the other.

    Args:
      programs: the later ones read values of the earlier ones.
      returned: results that the caller gets.
      target: what is compiled for, as of `measure`.
    """
    lives = _WrittenRanges(target)
    lives.program(_one(programs, returned, target))
    return lives.most({lives.array(v) for v in returned if not isinstance(v, Literal)}, {})


def _one(programs: Sequence[Program], returned: Sequence[Value], target: str) -> Program:
    """Programs that run one after the other, as a compiler has them: as one."""
    return rewrite_as_hlo(
        Program(programs[0].inputs, [e for program in programs for e in program.equations], tuple(returned)),
        target,
        ELEMENTWISE,
    )


class _WrittenRanges(LiveRanges):
    """The lives of what is written to memory."""

    def __init__(self, target: str, aliased: Mapping[Value, Value] | None = None):
        super().__init__()
        self._aliased = aliased or {}
        self._start = 0  # the step at which what is on the level at hand begins
        self._free: dict[Value, int] = {}  # donated arguments that are copied, and when that is done
        self._target = target
        self._fused = Fused()
        self._known: dict[tuple[Value, bool], list[Value]] = {}  # what `_made_of` has found for the program at hand
        self._slices: set[Value] = set()  # of stacks, that nothing has read yet
        self._products: set[Value] = set()
        self._before: tuple[Value, ...] = ()
        self._updated: set[Value | Literal] = set()  # what is written over when the next is made of it
        self._shared: set[Value] = set()  # arrays that came about so: XLA lays nothing else into their room
        self._rooms: list[tuple[int, int, int]] = []  # from which step to which how many bytes more are needed

    def use(self, value: Value, step: int) -> None:
        for written in self._made_of(value, False):
            array = self.array(written)
            if array in self._slices:
                self._slices.remove(array)
                self._made[array] = len(self.steps)
            super().use(array, step)

    def _made_of(self, value: Value, by_kernel: bool) -> list[Value]:
        """The values in memory that a value is computed from; itself if it is there for whoever reads it.

        Args:
          value: what is read.
          by_kernel: whether that is by an operation that computes cheap operands itself.
        """
        if isinstance(value, Literal):
            return []
        pending = [first := (self.array(value), by_kernel)]
        while pending:
            array, by_kernel = asked = pending[-1]
            maker = self._fused.fused_away.get(array) or (self._fused.duplicated.get(array) if by_kernel else None)
            if asked in self._known:
                pending.pop()
            elif maker is None:
                self._known[asked] = [array]
            else:
                by_kernel = maker not in self._fused.by_library
                parts = [(self.array(v), by_kernel) for v in maker.inputs if not isinstance(v, Literal)]
                unknown = [part for part in parts if part not in self._known]
                pending += unknown
                if not unknown:
                    self._known[asked] = list(dict.fromkeys(v for part in parts for v in self._known[part]))
        return self._known[first]

    def _operands(self, equation: Equation) -> list[list[Value]]:
        by_kernel = equation.primitive in FUSES_OPERANDS and equation not in self._fused.by_library
        return [self._made_of(value, by_kernel) for value in equation.inputs]

    def program(self, program: Program) -> None:
        program = with_copies(with_flattened(scattered_into(program, self._target), self._target))
        found = fuse(program.equations, program.outputs, self._target)
        self._fused.fused_away.update(found.fused_away)
        self._fused.duplicated.update(found.duplicated)
        self._fused.by_library.update(found.by_library)
        self._fused.products.update(found.products)
        if self._target == "cpu":
            self._known = {}  # values have no other names yet, and get them in the order that is to be found
            order = thunk_order(program.equations, found.fused_away, self._operands)
            self._donated(order)
            program = dataclasses.replace(program, equations=order)
        self._known = {}
        self._note_updated(program)
        before, self._start = self._start, len(self.steps)
        super().program(program)
        self._known, self._start = {}, before

    def _note_updated(self, program: Program) -> None:
        """Notes whose room is written over later, by what scatters into it or by a loop."""
        for equation in reversed(program.equations):
            self._updated.update(updated(equation))
            if is_alias(equation) and equation.outputs[0] in self._updated:
                self._updated.update(equation.inputs)

    def _loop(self, equation: Equation) -> None:
        super()._loop(equation)
        self._shared.update(map(self.array, equation.outputs))
        for stack in equation.outputs[equation.carries :] if self._target == "cpu" else ():
            self._made[stack] = self._start  # of zeros, that depend on nothing

    def _donated(self, equations: Sequence[Equation]) -> None:
        """Copies what is read from donated arguments after these may be overwritten."""
        aliased, self._aliased = self._aliased, {}
        for argument in copied(equations, self._operands, aliased, CAN_ALIAS_OPERAND):
            self.define([argument])
            self.steps.append("copy")
            self._free[argument] = len(self.steps)

    def _slice(self, slices: Iterable[Value]) -> None:
        self._slices |= set(slices)

    def _run(self, equation: Equation) -> None:
        if equation.outputs and all(v in self._fused.fused_away for v in equation.outputs):
            return
        if self._is_view(equation):
            (array,) = (v for v in equation.inputs if not isinstance(v, Literal))
            self.alias(equation.outputs[0], array)
            return
        step = len(self.steps)
        in_place = equation.primitive in CAN_ALIAS_OPERAND and equation not in self._fused.by_library
        in_place = in_place and self._updated.isdisjoint(equation.outputs)
        product = self._fused.products.get(equation)
        waiting = self._shared.union(*self._operands(product)) if product else self._shared
        for i, values in enumerate(self._operands(equation)):
            for value in values:
                over = in_place and self.array(value) not in waiting
                self.use(value, step if over or (equation.primitive in UPDATES and i == 0) else step + 1)
        self.define(equation.outputs)
        if equation.primitive in UPDATES or equation.primitive == "gather":
            self._shared.update(equation.outputs)  # what is gathered has axes more, which its readers take out
        if equation.primitive in MATMULS:
            for value in self._before if self._target == "gpu" else ():
                self.use(value, step + 1)
            self._before = equation.inputs
            self._products.update(equation.outputs)
        if room := _room(equation, self._target):
            self._rooms.append((step, step, room))
        self.steps.append(equation)

    def _is_view(self, equation: Equation) -> bool:
        if equation.primitive in VIEWS:
            return not isinstance(equation.inputs[0], Literal)
        if equation.primitive != "transpose" or self.array(equation.inputs[0]) in self._fused.fused_away:
            return False
        array = self.array(equation.inputs[0])
        return array not in self._made or array in self._products

    def most(self, results: Iterable[Value], overwritten: Mapping[Value, Value]) -> int:
        """The most bytes that are live at a step in no result's room, without what is given or returned.

        As XLA does, values are laid into rooms by falling size, each into the first whose result is not there yet and
        that nobody else has meanwhile.

        Args:
          results: what has a room of its own.
          overwritten: what takes a donated argument's room, and that argument. It is free once that is read no more.
        """
        end = len(self.steps)
        bytes_of = {v: v.device_bytes if v.memory == "device" else 0 for v in self._made}
        results = {v for v in results if v in self._made}
        own = ((bytes_of[v], 0, self._made[v]) for v in results)
        donated = (
            (bytes_of[v], self._free.get(argument, self._last.get(argument, 0)), self._made[v])
            for v, argument in overwritten.items()
            if v in self._made
        )
        rooms = FirstFit(donated if is_tpu(self._target) else [*own, *donated])
        changes = [0] * (end + 2)

        def add(start: int, stop: int, size: int) -> None:
            changes[start] += size
            changes[stop] -= size

        others = self._made.keys() - {*results, *overwritten}
        for value in sorted((v for v in others if bytes_of[v]), key=lambda v: (-bytes_of[v], self._made[v])):
            made = self._made[value]
            last = max(made + 1, min(self._last.get(value, made), end))
            if not rooms.allocate(bytes_of[value], made, last):
                add(made, last, bytes_of[value])
        for start, step, room in self._rooms:
            add(start, step + 1, room)
        return max(itertools.accumulate(changes), default=0)


def target_notes(passes: Trace, target: str) -> list[str]:
    """What a target makes of operations in a way of its own that takes room, in sentences."""
    programs = [passes.forward, passes.backward] if passes.step is None else [passes.step.program]
    if is_tpu(target):
        return []
    there = {e.primitive for program in programs for e, _ in program.walk()}
    found = []
    if "ragged_dot_general" in there:
        found.append(
            f"A {target.upper()} has no grouped matmul: ragged_dot becomes a dense matmul of one copy of its operand "
            "per group, with zeros in place of the other groups, and XLA also transposes these copies. The predicted "
            "peak includes them."
        )
    if target == "cpu" and not _SELECT_AND_SCATTER.isdisjoint(there):
        found.append(
            "On a CPU, the derivative of a pooling stores the position of each element, as one integer per axis. "
            "The predicted peak includes these integers."
        )
    return found


def _room(equation: Equation, target: str) -> int:
    """Bytes that an operation needs while it runs, beside what it reads and makes."""
    if is_tpu(target):
        return 0
    if equation.primitive == "ragged_dot_general" and target != "cpu":
        return _dense_groups(equation)
    if equation.primitive == MIXED:
        return sum(v.device_bytes for v in equation.outputs)  # each round begins with a copy of what it mixes
    return 0


def _dense_groups(equation: Equation) -> int:
    lhs, rhs, groups = equation.inputs[:3]
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (contracting, _), _ = numbers.dot_dimension_numbers
    dense = lhs.device_bytes
    if set(numbers.lhs_ragged_dimensions) & set(contracting):
        dense += rhs.device_bytes
    return 2 * int(groups.shape[-1]) * dense

"""How many bytes a compiler sets aside for both passes, foretold from the trace.

`rematscope.liveness` counts every value that an equation makes. A compiler writes fewer of them to memory, and needs
room for other things. What is foretold here follows from the program and from rules that XLA has on every target:

* A value that only elementwise operations and reductions read is computed where it is read (fused), and keeps what it
  is made of alive until then. Where several read it, it is so only if it is cheap and made of one array at most, for
  else more would be read than is spared (XLA's `InstructionFusion::EffectivelyAtMostUnary`). What goes through an
  optimization barrier, into or out of a loop, or to the caller, is written.
* A slice of a stack is taken where it is first read, and what a loop stacks is written where it stays. A reshape is no
  copy, nor is a product's transposition.
* What a product, a convolution or a sort reads is there for as long as that runs; what a product reads, until the next
  has run, for either may come first.
* Results are set aside from the start. Until they are made, others may lie in their room; those that take a donated
  argument's room take none.
* What is scattered into zeros and then added to something is scattered into that.

What a target does in its own way is said of it in `lowered_otherwise`: the CPU has no product by groups, and none but
of plain rows and columns, so operands are copied first, from what they are made of where that is cheap. Its sums and
maxima are a library's, which takes arithmetic into them but no selections and broadcasts: those are written.

These are rules of XLA as JAX 0.11 and later have it. Before, a CPU's took more. With JAX 0.7.2 an unrolled checkpoint
is undone, for barriers went before what is equal was merged: less than half of what it takes is foretold. Of a small
language model it is a third less than what it takes.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from rematscope.ir.cost_rules import RULES
from rematscope.ir.program import CASTS, Equation, Literal, Program, Value
from rematscope.memory.lives import Lives
from rematscope.tracing.trace import Passes

_ELEMENTWISE = frozenset(name for name, rule in RULES.items() if rule in (RULES["add"], RULES["exp"])) | frozenset(
    "broadcast_in_dim clamp convert_element_type copy integer_pow iota pad rev select_n slice".split()
)
# XLA computes none of these twice (`InstructionFusion::IsExpensive`); sines and cosines of real numbers it does.
_EXPENSIVE = frozenset(name for name, rule in RULES.items() if rule is RULES["exp"]) - {"sin", "cos", "tan"}
_IN_PLACE = frozenset("dynamic_update_slice scatter scatter-add scatter-mul scatter-min scatter-max".split())
_VIEWS = frozenset("reshape squeeze expand_dims stop_gradient copy_p".split())
_REDUCES = frozenset(name for name in RULES if name.startswith("reduce_") or name in ("argmax", "argmin")) | {"reduce"}
_PLACES = frozenset({"select_and_scatter", "select_and_scatter_add"})
# What a CPU's library of products and sums computes, and what it takes into a sum with it.
_SUMMED = frozenset({"reduce_sum", "reduce_max", "reduce_min"})
_SUMMED_WITH = frozenset("add add_any sub mul div neg exp integer_pow square max min convert_element_type".split())
_READS_IN_PLACE = _ELEMENTWISE | _VIEWS | _REDUCES | {"dynamic_update_slice", "transpose", "concatenate"}


def set_aside_bytes(passes: Passes, target: str = "cpu") -> int:
    """Bytes that a compiler sets aside for both passes as one program, or for the step that they stand in.

    Args:
      passes: the trace. On a mesh the bytes are those of one device.
      target: what is compiled for, as of `measure`.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import trace
      >>> set_aside_bytes(trace(lambda x: jnp.sin(x), jnp.ones(1024)))  # x, its cotangent; the sine, and the gradient
      16384
    """
    step = passes.step
    if step is None:
        programs = [passes.forward, passes.backward]
        given = {*passes.forward.inputs, *passes.forward.constants, *passes.backward.constants, *passes.cotangents}
        returned = [*passes.outputs, *passes.backward.outputs]
    else:
        programs = [step.program]
        given, returned = {*step.program.inputs, *step.program.constants}, list(step.program.outputs)
    equations = [e for program in programs for e in program.equations]
    lives = _Written(target, fused(equations, returned, target), copied(equations, target))
    for program in programs:
        lives.program(program)
    results = {lives.array(v) for v in returned if not isinstance(v, Literal)}
    overwritten = {lives.array(v) for v in step.aliased} if step is not None else set()
    sizes = sum(v.device_bytes for v in given if v.memory == "device")
    sizes += sum(v.device_bytes for v in results - overwritten - given if v.memory == "device")
    copies = sum(v.device_bytes for v in returned if not isinstance(v, Literal) and lives.array(v) in given)
    return sizes + copies + lives.most(results - overwritten, overwritten)


def temporary_bytes(programs: Sequence[Program], returned: Sequence[Value], target: str = "cpu") -> int:
    """The same without what is given and returned, of programs that run one after the other.

    Args:
      programs: the later ones read values of the earlier ones.
      returned: results that the caller gets.
      target: what is compiled for, as of `measure`.
    """
    equations = [e for program in programs for e in program.equations]
    lives = _Written(target, fused(equations, returned, target), copied(equations, target))
    for program in programs:
        lives.program(program)
    return lives.most({lives.array(v) for v in returned if not isinstance(v, Literal)}, ())


def fused(equations: Sequence[Equation], written: Iterable[Value], target: str = "cpu") -> dict[Value, Equation]:
    """The values of equations on one level that a compiler computes where they are read, and what makes them.

    Args:
      equations: one after the other, with barriers, without what is in their bodies.
      written: what is handed on to somebody else.
      target: what is compiled for.
    """
    same = _same(equations)
    readers: dict[Value, list[Equation]] = {}
    there = {v for v in written if not isinstance(v, Literal)}
    for equation in equations:
        operands = [_of(v, same) for v in equation.inputs if not isinstance(v, Literal)]
        if equation.primitive == "optimization_barrier" or equation.bodies:
            there.update(operands)
        for operand in dict.fromkeys(operands):
            if not _is_same(equation):
                readers.setdefault(operand, []).append(equation)
    there = {_of(v, same) for v in there}
    added_to = _added_to(equations, {v: r for v, r in readers.items() if v not in there})
    found: dict[Value, Equation] = {scatter.outputs[0]: scatter for scatter in added_to.values()}
    summed = {e for e in equations if e.primitive in _SUMMED} if target == "cpu" else set()
    in_place = _READS_IN_PLACE | (_PLACES if target == "cpu" else set())
    spread = {e.outputs[0] for e in equations if e.primitive in ("broadcast_in_dim", "iota")}
    spread |= {value for value in same if _of(value, same) in spread}
    for equation in reversed(equations):
        if equation.primitive not in _ELEMENTWISE or len(equation.outputs) != 1 or equation in added_to:
            continue
        (value,) = equation.outputs
        if value in there or value in same:
            continue
        reading = readers.get(value, [])
        if not all(reader.primitive in in_place for reader in reading):
            continue
        if not summed.isdisjoint(reading):
            if len(reading) > 1 or equation.primitive not in _SUMMED_WITH:
                continue
            summed.add(equation)
        if len(reading) <= 1 or (equation.primitive not in _EXPENSIVE and _unary(equation, spread)):
            found[value] = equation
    return found


def _added_to(equations: Sequence[Equation], readers: dict[Value, list[Equation]]) -> dict[Equation, Equation]:
    """Each sum with what was scattered into zeros, and what did that: XLA scatters into the other summand instead."""
    makers = {e.outputs[0]: e for e in equations if len(e.outputs) == 1}
    broadcasts = {v: e.inputs[0] for v, e in makers.items() if e.primitive == "broadcast_in_dim"}
    zeros = {v for v, of in broadcasts.items() if isinstance(of, Literal) and of.name in ("0", "0.0")}
    scattered = {v: e for v, e in makers.items() if e.primitive == "scatter-add" and e.inputs[0] in zeros}
    reading = {v: readers.get(v, []) for v in scattered}
    return {
        only[0]: scattered[v]
        for v, only in reading.items()
        if len(only) == 1 and only[0].primitive in ("add", "add_any")
    }


def copied(equations: Sequence[Equation], target: str) -> frozenset[Value]:
    """The values of equations on one level that are written with their axes in another order where they are made.

    A CPU copies what a product reads otherwise than by rows and columns. The copy is computed from what the value is
    made of, like every other reader of it, unless that takes long.
    """
    if target != "cpu":
        return frozenset()
    same = _same(equations)
    made = {v for e in equations if e.primitive in _ELEMENTWISE - _EXPENSIVE for v in e.outputs}
    return frozenset(_of(v, same) for e in equations if e.primitive == "dot_general" for v in _turned(e)) & made


def _is_same(equation: Equation) -> bool:
    return equation.primitive == "name" or equation.primitive in CASTS | _VIEWS


def _same(equations: Iterable[Equation]) -> dict[Value, Value]:
    """What is another value by another name, or in another shape."""
    pairs = ((e.outputs[0], e.inputs[0]) for e in equations if _is_same(e))
    return {value: operand for value, operand in pairs if not isinstance(operand, Literal)}


def _of(value: Value, same: dict[Value, Value]) -> Value:
    while value in same:
        value = same[value]
    return value


def is_fused(equation: Equation) -> bool:
    """Whether XLA rather computes an operation in each that reads it than write its result."""
    return equation.primitive in _ELEMENTWISE - _EXPENSIVE and len(equation.outputs) == 1 and _unary(equation)


def _unary(equation: Equation, spread: Collection[Value] = ()) -> bool:
    """Whether an operation reads one array at most that is as large as its result; what is `spread` is none."""
    (value,) = equation.outputs
    size = math.prod(value.shape)
    operands = {v for v in equation.inputs if not isinstance(v, Literal)}
    return sum(math.prod(v.shape) >= size for v in operands.difference(spread)) <= 1


class _Written(Lives):
    """The lives of what is written to memory."""

    def __init__(self, target: str, absent: dict[Value, Equation], turned: frozenset[Value]):
        super().__init__()
        self._target = target
        self._absent = absent
        self._turned = turned
        self._copies: dict[Value, int] = {}  # of what is turned → the last step that reads its copy
        self._asked: dict[Value, int] = {}
        self._slices: set[Value] = set()  # of stacks, that nothing has read yet
        self._products: set[Value] = set()
        self._before: tuple[Value, ...] = ()
        self._rooms: list[tuple[int, int, int]] = []  # from which step to which how many bytes more are needed

    def read(self, value: Value, step: int) -> None:
        if isinstance(value, Literal):
            return
        pending = [value]
        while pending:
            array = self.array(pending.pop())
            if (maker := self._absent.get(array)) is None:
                if array in self._slices:
                    self._slices.remove(array)
                    self._made[array] = len(self.steps)
                super().read(array, step)
            elif self._asked.get(array, -1) < step:
                self._asked[array] = step
                pending += [v for v in maker.inputs if not isinstance(v, Literal)]

    def program(self, program: Program) -> None:
        for body in (body for equation in program.equations for body in equation.bodies):
            self._absent |= fused(body.equations, body.outputs, self._target)
            self._turned |= copied(body.equations, self._target)
        super().program(program)

    def _slice(self, slices: Iterable[Value]) -> None:
        self._slices |= set(slices)

    def _run(self, equation: Equation) -> None:
        if equation.outputs and all(v in self._absent for v in equation.outputs):
            return
        if self._is_view(equation):
            (array,) = (v for v in equation.inputs if not isinstance(v, Literal))
            self._same[equation.outputs[0]] = self.array(array)
            return
        step = len(self.steps)
        in_place = equation.primitive in _ELEMENTWISE and self._turned.isdisjoint(equation.outputs)
        turned = {v for v in _turned(equation) if self.array(v) in self._turned} if self._target == "cpu" else set()
        self._copies.update((self.array(v), step) for v in turned)
        for i, value in enumerate(equation.inputs):
            if value not in turned:
                self.read(value, step if in_place or (equation.primitive in _IN_PLACE and i == 0) else step + 1)
        self.make(equation.outputs)
        if equation.primitive in ("dot_general", "conv_general_dilated"):
            for value in self._before:
                self.read(value, step + 1)
            self._before = equation.inputs
            self._products.update(equation.outputs)
        if room := _room(equation, self._target) - sum(v.device_bytes for v in turned):
            # Which place in a window each number has does not depend on anything, and is written first of all.
            self._rooms.append((0 if equation.primitive in _PLACES else step, step, room))
        self.steps.append(equation)

    def _is_view(self, equation: Equation) -> bool:
        if equation.primitive in _VIEWS:
            return not isinstance(equation.inputs[0], Literal)
        if equation.primitive != "transpose" or self.array(equation.inputs[0]) in self._absent:
            return False
        array = self.array(equation.inputs[0])
        return array not in self._made or array in self._products

    def most(self, results: Iterable[Value], overwritten: Iterable[Value]) -> int:
        """The most bytes that are live at a step in no result's room, without what is given or returned.

        As XLA does, values are laid into rooms by falling size, each into the first whose result is not there yet and
        that nobody else has meanwhile.
        """
        end = len(self.steps)
        bytes_of = {v: v.device_bytes if v.memory == "device" else 0 for v in self._made}
        results = sorted((v for v in results if v in self._made), key=lambda v: (v.device_bytes, self._made[v]))
        rooms = [(v.device_bytes, [(self._made[v], end + 1)]) for v in results]
        changes = [0] * (end + 2)

        def add(start: int, stop: int, size: int) -> None:
            changes[start] += size
            changes[stop] -= size

        others = self._made.keys() - {*results, *overwritten}
        for value in sorted((v for v in others if bytes_of[v]), key=lambda v: (-bytes_of[v], self._made[v])):
            made = self._made[value]
            last = max(made + 1, min(self._last.get(value, made), end))
            for size, taken in rooms:
                if size >= bytes_of[value] and all(last <= start or made >= stop for start, stop in taken):
                    taken.append((made, last))
                    break
            else:
                add(made, last, bytes_of[value])
        for start, step, room in self._rooms:
            add(start, step + 1, room)
        for value, last in self._copies.items():
            add(self._made[value], last + 1, value.device_bytes)
        return max(itertools.accumulate(changes), default=0)


def lowered_otherwise(passes: Passes, target: str) -> list[str]:
    """What a target makes of operations in a way of its own that takes room, in sentences."""
    programs = [passes.forward, passes.backward] if passes.step is None else [passes.step.program]
    if target == "tpu" or target.startswith("tpu "):
        return []
    there = {e.primitive for program in programs for e, _ in program.walk()}
    found = []
    if "ragged_dot_general" in there:
        found.append(
            f"A {target.upper()} has no product by groups: ragged_dot becomes a dense one of its operand once for each "
            "group, zeros where another group stands, and of that transposed. The peak predicted has these in it."
        )
    if target == "cpu" and not _PLACES.isdisjoint(there):
        found.append(
            "The derivative of a pooling is written with the place of each number on a CPU, an integer for each axis. "
            "The peak predicted has these in it."
        )
    return found


def _room(equation: Equation, target: str) -> int:
    """Bytes that an operation needs while it runs, beside what it reads and makes."""
    if target == "tpu" or target.startswith("tpu "):
        return 0
    if equation.primitive == "ragged_dot_general":
        return _dense_groups(equation)
    if target != "cpu":
        return 0
    if equation.primitive in _PLACES:
        return sum(4 * len(v.shape) * math.prod(v.on_device.shape) for v in equation.inputs[:2])
    return sum(v.device_bytes for v in _turned(equation))


def _turned(equation: Equation) -> Iterator[Value]:
    """What is copied with its axes in another order, so that a product is one of rows and columns."""
    if equation.primitive == "conv_general_dilated":
        numbers = equation.params["dimension_numbers"]
        arrays = (*equation.inputs[:2], equation.outputs[0])
        ends = [(spec[0], spec[1]) for spec in (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)]
        last = len(arrays[0].shape) - 1
        usual = [(0, last), (last, last - 1), (0, last)]  # N…C, …IO, N…C
        yield from (v for v, here, there in zip(arrays, ends, usual, strict=True) if here != there)
    if equation.primitive == "dot_general":
        (left, right), (_, right_batch) = equation.params["dimension_numbers"]
        lhs, rhs = equation.inputs[:2]
        if len(lhs.shape) > 2 and max(left, default=-1) < len(lhs.shape) - 1:
            yield lhs
        if len(rhs.shape) > 2 and min(right, default=0) > len(right_batch):
            yield rhs


def _dense_groups(equation: Equation) -> int:
    lhs, rhs, groups = equation.inputs[:3]
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (contracting, _), _ = numbers.dot_dimension_numbers
    dense = lhs.device_bytes
    if set(numbers.lhs_ragged_dimensions) & set(contracting):
        dense += rhs.device_bytes
    return 2 * int(groups.shape[-1]) * dense

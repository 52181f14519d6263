"""How many bytes a compiler sets aside for both passes, foretold from the trace.

`rematscope.liveness` counts every value that an equation makes. A compiler writes fewer of them to memory, and needs
room for other things. What is foretold here follows from the program as `rematscope.memory.lowered` has it, and from
rules that XLA has on every target:

* A value that only elementwise operations and reductions read is computed where it is read (fused), and keeps what it
  is made of alive until then. Where several read it, it is so only if it is cheap and made of one array at most, for
  else more would be read than is spared (XLA's `InstructionFusion::EffectivelyAtMostUnary`). If others read it too, it
  is written for those alone. What goes through an optimization barrier, into or out of a loop, or to the caller, is
  written.
* Of a sum of padded parts (every second number, say) that several read, the parts are written; each reader adds them.
* A slice of a stack is taken where it is first read, and what a loop stacks is written where it stays. A reshape is no
  copy, nor is a product's transposition.
* What a product, a convolution or a sort reads is there for as long as that runs. In another order than a CPU's, what a
  product reads is there until the next has run, for either may come first.
* Results are set aside from the start. Until they are made, others may lie in their room; those that take a donated
  argument's room take none.
* What is scattered into zeros and then added to something is scattered into that.

What a target does in its own way is said of it in `lowered_otherwise`. A CPU's sums and maxima are a library's, with
what is around them; see `rematscope.memory.by_library`.

These are rules of XLA as JAX 0.11 and later have it. Before, a CPU's took more. With JAX 0.7.2 an unrolled checkpoint
is undone, for barriers went before what is equal was merged: less than half of what it takes is foretold. Of a small
language model a third less than what it takes is foretold, and of a net in bfloat16, whose products all go by float32.
"""

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Sequence

from rematscope.ir.cost_rules import RULES
from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.memory.by_library import by_library
from rematscope.memory.lives import Lives
from rematscope.memory.lowered import MIXED, VIEWS, breadth_first, is_another_name, lowered
from rematscope.memory.rooms import Rooms
from rematscope.tracing.trace import Passes

_ELEMENTWISE = frozenset(name for name, rule in RULES.items() if rule in (RULES["add"], RULES["exp"])) | frozenset(
    "bitcast_convert_type broadcast_in_dim clamp convert_element_type copy integer_pow iota pad rev "
    "select_n slice".split()
)
# XLA computes none of these twice (`InstructionFusion::IsExpensive`); sines and cosines of real numbers it does.
_EXPENSIVE = frozenset(name for name, rule in RULES.items() if rule is RULES["exp"]) - {"sin", "cos", "tan"}
_OF_ITSELF = frozenset({"integer_pow", "one_minus_square", "square"})  # products of an array with itself
_IN_PLACE = frozenset("dynamic_update_slice scatter scatter-add scatter-mul scatter-min scatter-max".split())
_REDUCES = frozenset(name for name in RULES if name.startswith("reduce_") or name in ("argmax", "argmin")) | {"reduce"}
_PLACES = frozenset({"select_and_scatter", "select_and_scatter_add"})
# XLA limits how often it computes what is read at several places (`CodeDuplicationTooHigh`).
_MOVES = frozenset("concatenate dynamic_update_slice pad rev slice split".split())
_READS_IN_PLACE = _ELEMENTWISE | VIEWS | _REDUCES | {"dynamic_update_slice", "transpose", "concatenate"}


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
    lives = _Written(target)
    lives.program(_one(programs, returned, target))
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
    lives = _Written(target)
    lives.program(_one(programs, returned, target))
    return lives.most({lives.array(v) for v in returned if not isinstance(v, Literal)}, ())


def _one(programs: Sequence[Program], returned: Sequence[Value], target: str) -> Program:
    """Programs that run one after the other, as a compiler has them: as one."""
    return lowered(
        Program(programs[0].inputs, [e for program in programs for e in program.equations], tuple(returned)),
        target,
        _ELEMENTWISE,
    )


@dataclasses.dataclass(frozen=True)
class Fused:
    """What a compiler does not write of the equations on one level.

    Attributes:
      absent: values that are computed where they are read, and what makes them.
      anew: values that are written for some that read them, and computed again where others do.
      by_library: equations that a library computes with the sum that they are for.
    """

    absent: dict[Value, Equation] = dataclasses.field(default_factory=dict)
    anew: dict[Value, Equation] = dataclasses.field(default_factory=dict)
    by_library: set[Equation] = dataclasses.field(default_factory=set)


def fused(equations: Sequence[Equation], written: Iterable[Value], target: str = "cpu") -> Fused:
    """What of the equations on one level a compiler computes where it is read.

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
            if not is_another_name(equation):
                readers.setdefault(operand, []).append(equation)
    there = {_of(v, same) for v in there}
    added_to = _added_to(equations, {v: r for v, r in readers.items() if v not in there})
    found = Fused({scatter.outputs[0]: scatter for scatter in added_to.values()})
    together = by_library(equations, readers, there, same) if target == "cpu" else {}
    in_place = _READS_IN_PLACE
    spread = {e.outputs[0] for e in equations if e.primitive in ("broadcast_in_dim", "iota")}
    spread |= {value for value in same if _of(value, same) in spread}
    scattered = set(added_to.values())
    places = {v: place for place, e in enumerate(equations) for v in e.outputs}
    padded, parts = _padded(equations), set[Value]()
    for equation in reversed(equations):
        if equation in together:
            if together[equation] is not equation:
                found.absent[equation.outputs[0]] = equation
            continue
        if equation.primitive not in _ELEMENTWISE | {"transpose"} or len(equation.outputs) != 1 or equation in added_to:
            continue
        (value,) = equation.outputs
        if value in there or value in same:
            continue
        reading = readers.get(value, [])
        if reading and scattered.issuperset(reading) and all(value is reader.inputs[0] for reader in reading):
            found.absent[value] = equation  # zeros that nothing is scattered into
            continue
        once = _unary(equation, spread) or _flattened(value, reading)
        cheap = equation.primitive not in _EXPENSIVE and once
        fusible = [reader.primitive in in_place and reader not in together for reader in reading]
        if equation in padded and all(fusible) and (len(reading) > 1 or value in parts):
            parts.update(_of(v, same) for v in equation.inputs)
            if equation.primitive != "pad":
                found.absent[value] = equation
            continue
        if all(fusible) and not cheap and equation.primitive not in _EXPENSIVE:
            others = {v for reader in reading for v in reader.inputs if _of(v, same) is not value} - spread
            cheap = all(places.get(v, -1) < places[value] for v in others) and _MOVES.isdisjoint(
                reader.primitive for reader in (equation, *reading)
            )
        if len(reading) > 1 and target == "cpu" and value.dtype.itemsize == 2 and value not in spread:
            cheap = False  # what is computed in four bytes and rounded is not computed twice
        if all(fusible) and (len(reading) <= 1 or cheap):
            found.absent[value] = equation
        elif cheap and any(fusible):
            found.anew[value] = equation
    found.by_library.update(together)
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


def _padded(equations: Sequence[Equation]) -> set[Equation]:
    """Sums of what is padded only, and what they are sums of."""
    made, found = set[Value](), set[Equation]()
    for equation in equations:
        if equation.primitive == "pad" or (
            equation.primitive in ("add", "add_any") and made.issuperset(equation.inputs)
        ):
            made.update(equation.outputs)
            found.add(equation)
    return found


def _same(equations: Iterable[Equation]) -> dict[Value, Value]:
    """What is another value by another name, or in another shape."""
    same: dict[Value, Value] = {}  # each pass of a schedule may call one value by the other's name
    for value, operand in ((e.outputs[0], e.inputs[0]) for e in equations if is_another_name(e)):
        if not isinstance(operand, Literal) and (first := _of(operand, same)) is not value:
            same[value] = first
    return same


def _of(value: Value, same: dict[Value, Value]) -> Value:
    return _of(same[value], same) if value in same else value


def is_fused(equation: Equation) -> bool:
    """Whether XLA rather computes an operation in each that reads it than write its result."""
    return equation.primitive in _ELEMENTWISE - _EXPENSIVE and len(equation.outputs) == 1 and _unary(equation)


def _unary(equation: Equation, spread: Collection[Value] = ()) -> bool:
    """Whether an operation reads one array at most that is as large as its result; what is `spread` is none."""
    if equation.primitive in _OF_ITSELF and (equation.primitive != "integer_pow" or equation.params["y"] > 1):
        return False
    (value,) = equation.outputs
    size = math.prod(value.shape)
    return (
        sum(math.prod(v.shape) >= size for v in equation.inputs if not isinstance(v, Literal) and v not in spread) <= 1
    )


def _flattened(value: Value, reading: Sequence[Equation]) -> bool:
    """Whether only products of rows and columns read a value of more axes: what it is reshaped to for them is unary."""
    return len(value.shape) > 2 and all(
        reader.primitive == "copy"
        or (reader.primitive == "dot_general" and not reader.params["dimension_numbers"][1][0])
        for reader in reading
    )


class _Written(Lives):
    """The lives of what is written to memory."""

    def __init__(self, target: str):
        super().__init__()
        self._target = target
        self._fused = Fused()
        self._known: dict[tuple[Value, bool], list[Value]] = {}  # what `_made_of` has found for the program at hand
        self._slices: set[Value] = set()  # of stacks, that nothing has read yet
        self._products: set[Value] = set()
        self._before: tuple[Value, ...] = ()
        self._rooms: list[tuple[int, int, int]] = []  # from which step to which how many bytes more are needed

    def read(self, value: Value, step: int) -> None:
        for written in self._made_of(value, False):
            array = self.array(written)
            if array in self._slices:
                self._slices.remove(array)
                self._made[array] = len(self.steps)
            super().read(array, step)

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
            maker = self._fused.absent.get(array) or (self._fused.anew.get(array) if by_kernel else None)
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
        by_kernel = equation.primitive in _READS_IN_PLACE and equation not in self._fused.by_library
        return [self._made_of(value, by_kernel) for value in equation.inputs]

    def program(self, program: Program) -> None:
        found = fused(program.equations, program.outputs, self._target)
        self._fused.absent.update(found.absent)
        self._fused.anew.update(found.anew)
        self._fused.by_library.update(found.by_library)
        if self._target == "cpu":
            self._known = {}  # values have no other names yet, and get them in the order that is to be found
            order = breadth_first(program.equations, found.absent, self._operands)
            program = dataclasses.replace(program, equations=order)
        self._known = {}
        super().program(program)
        self._known = {}

    def _slice(self, slices: Iterable[Value]) -> None:
        self._slices |= set(slices)

    def _run(self, equation: Equation) -> None:
        if equation.outputs and all(v in self._fused.absent for v in equation.outputs):
            return
        if self._is_view(equation):
            (array,) = (v for v in equation.inputs if not isinstance(v, Literal))
            self._is(equation.outputs[0], array)
            return
        step = len(self.steps)
        in_place = equation.primitive in _ELEMENTWISE - {"copy"} | {MIXED} and equation not in self._fused.by_library
        for i, values in enumerate(self._operands(equation)):
            for value in values:
                self.read(value, step if in_place or (equation.primitive in _IN_PLACE and i == 0) else step + 1)
        self.make(equation.outputs)
        if equation.primitive in ("dot_general", "conv_general_dilated"):
            for value in self._before if self._target != "cpu" else ():
                self.read(value, step + 1)
            self._before = equation.inputs
            self._products.update(equation.outputs)
        if room := _room(equation, self._target):
            self._rooms.append((step, step, room))
        self.steps.append(equation)

    def _is_view(self, equation: Equation) -> bool:
        if equation.primitive in VIEWS:
            return not isinstance(equation.inputs[0], Literal)
        if equation.primitive != "transpose" or self.array(equation.inputs[0]) in self._fused.absent:
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
        results = {v for v in results if v in self._made}
        rooms = Rooms((bytes_of[v], self._made[v]) for v in results)
        changes = [0] * (end + 2)

        def add(start: int, stop: int, size: int) -> None:
            changes[start] += size
            changes[stop] -= size

        others = self._made.keys() - {*results, *overwritten}
        for value in sorted((v for v in others if bytes_of[v]), key=lambda v: (-bytes_of[v], self._made[v])):
            made = self._made[value]
            last = max(made + 1, min(self._last.get(value, made), end))
            if not rooms.take(bytes_of[value], made, last):
                add(made, last, bytes_of[value])
        for start, step, room in self._rooms:
            add(start, step + 1, room)
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

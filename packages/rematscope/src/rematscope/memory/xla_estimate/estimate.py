"""Estimate from the trace how many bytes XLA allocates for both passes.

`rematscope.liveness` counts every value that an equation defines. XLA writes fewer values to memory, but needs
additional buffers. The estimate starts from the program that `hlo_rewrites.py` returns. It applies rules that hold for
every target:

* XLA fuses a cheap operation into its readers if these are elementwise operations and reductions, and does not write
  its result; see `fusion.py`. The operands of a fused operation stay live until the fusion runs. Values that pass
  through an optimization barrier, into or out of a loop, or to the caller are written.
* A slice of a stack is taken at its first use. A loop writes its stacked results in place. A reshape, or the
  transposition of a matmul's result, needs no copy.
* The operands of a matmul, a convolution or a sort are live while it runs. On a GPU, the operands of a matmul are live
  until the next matmul has run, because the schedule may run either matmul first.
* A branch writes the results of a `cond` into their buffers.
* An elementwise result reuses the buffer of an operand without other readers. A scatter, and a loop's carry, reuse only
  the buffer that they overwrite.
* The buffers of results are allocated from the start. Before a result is written, its buffer may hold other values. On
  a TPU, this applies only to the buffer of a donated argument after its last use.
* A value that is overwritten before its last reader has run is copied; a donated argument is copied at the start. See
  `copies.py`.

`target_notes` describes rules for a single target. On a CPU, a library computes sums and maxima together with the
operations around them; see `ynnpack.py`.

The rules are those of XLA as of JAX 0.11. Older releases allocate more memory on a CPU. With JAX 0.7.2, XLA undoes an
unrolled checkpoint, because it removes barriers before it merges equal operations. The estimate is then less than half
of the bytes that XLA allocates. For a small language model, and for a model in bfloat16, it is a third too low.
"""

import bisect
import contextlib
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rematscope.ir.primitives import MATMULS, UPDATES, VIEWS
from rematscope.ir.program import Equation, Literal, Program, Value
from rematscope.memory.live_ranges import LiveRanges
from rematscope.memory.xla_estimate.copies import copied_arguments, with_copies
from rematscope.memory.xla_estimate.cpu_schedule import thunk_order
from rematscope.memory.xla_estimate.fusion import (
    CAN_ALIAS_OPERAND,
    FUSES_OPERANDS,
    Fused,
    fuse,
    scattered_into,
    with_flattened,
)
from rematscope.memory.xla_estimate.hlo_rewrites import rewrite_as_hlo
from rematscope.memory.xla_estimate.level import Level
from rematscope.seconds.devices import is_tpu
from rematscope.tracing.trace import Trace, inputs_of, programs_of, results_of


class FirstFit:
    """The buffers of results, which may hold other values until the results are written.

    A value gets the smallest buffer that fits; of several such buffers, the one whose result is written first.
    """

    def __init__(self, results: Iterable[tuple[int, int, int]]):
        """Args:
        results: for each result, its bytes, the step from which its buffer is free, and the step that writes it.
        """
        self._made: dict[int, list[int]] = {}  # for each size, the steps that write results of that size
        # For each buffer, the starts and the stops of the intervals in which it is occupied, in order.
        self._taken: dict[int, list[tuple[list[int], list[int]]]] = {}
        for size, made, free in sorted((size, made, free) for size, free, made in results):
            self._made.setdefault(size, []).append(made)
            self._taken.setdefault(size, []).append(([-1], [free]))

    def allocate(self, size: int, made: int, last: int) -> bool:
        """Reserve a buffer of at least `size` bytes between two steps, and return whether one was free."""
        for capacity, steps in self._made.items():
            if capacity < size:
                continue
            for starts, stops in self._taken[capacity][bisect.bisect_left(steps, last) :]:
                place = bisect.bisect_left(starts, made)
                if (place and stops[place - 1] > made) or (place < len(starts) and starts[place] < last):
                    continue
                starts.insert(place, made)
                stops.insert(place, last)
                return True
        return False


_SELECT_AND_SCATTER = frozenset({"select_and_scatter", "select_and_scatter_add"})


def estimate_compiled_bytes(passes: Trace, target: str = "cpu") -> int:
    """Estimate the bytes that XLA allocates for both passes as one program, or for the training step around them.

    Args:
      passes: the trace. On a mesh the bytes are those of one device.
      target: the target to compile for, as in `measure`.

    Example:
      >>> import jax.numpy as jnp
      >>> from rematscope import trace
      >>> estimate_compiled_bytes(
      ...     trace(lambda x: jnp.sin(x), jnp.ones(1024))
      ... )  # x, its cotangent; the sine, and the gradient
      16384
    """
    return allocations(passes, target).peak_bytes


class Allocation(NamedTuple):
    """A buffer that the compiler allocates for part of a program.

    Attributes:
      value: the value in it; None for scratch memory of an operation.
      start, stop: the steps between which the buffer is live.
      nbytes: its size.
    """

    value: Value | None
    start: int
    stop: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Allocations:
    """All buffers of a compiled program, as `estimate_compiled_bytes` predicts them.

    Attributes:
      steps: the operations in the order in which they run; a string for a copy.
      given: the arguments and constants, which are live throughout.
      results: the outputs with a buffer of their own, which is allocated throughout.
      copied_bytes: the bytes of outputs that are copies of arguments.
      temporaries: the buffers that are live for some steps only.
    """

    steps: Sequence[Equation | str]
    given: Sequence[Value]
    results: Sequence[Value]
    copied_bytes: int
    temporaries: Sequence[Allocation]

    @property
    def fixed_bytes(self) -> int:
        """The bytes that are allocated throughout."""
        return sum(v.device_bytes for v in (*self.given, *self.results)) + self.copied_bytes

    @functools.cached_property
    def temporary_bytes(self) -> Sequence[int]:
        """The bytes of live temporaries at each step, and once more after the last step."""
        changes = [0] * (len(self.steps) + 2)
        for _, start, stop, nbytes in self.temporaries:
            changes[start] += nbytes
            changes[stop] -= nbytes
        return [*itertools.accumulate(changes)][:-1]

    @property
    def peak_bytes(self) -> int:
        """The bytes at the peak."""
        return self.fixed_bytes + max(self.temporary_bytes, default=0)


def allocations(passes: Trace, target: str = "cpu") -> Allocations:
    """Return the buffers that a compiler allocates for both passes as one program, or for the step around them."""
    given, returned = inputs_of(passes), results_of(passes)
    constants = {v: array for program in programs_of(passes) for v, array in program.constants.items()}
    aliased = {} if passes.step is None else passes.step.aliased
    lives = _WrittenRanges(target, aliased)
    lives.program(_as_one_program(programs_of(passes), returned, target))
    results = dict.fromkeys(lives.array(v) for v in returned if not isinstance(v, Literal))
    overwritten = {lives.array(v): argument for v, argument in aliased.items()}
    # Not in sets, whose order differs from run to run.
    throughout = [v for v in dict.fromkeys((*given, *distinct_constants(constants))) if v.memory == "device"]
    fixed = {*given, *constants}
    own = [v for v in results if v not in overwritten and v not in fixed and v.memory == "device"]
    copies = sum(v.device_bytes for v in returned if not isinstance(v, Literal) and lives.array(v) in fixed)
    live = lives.live(results.keys() - overwritten.keys(), overwritten)
    return Allocations(lives.steps, throughout, own, copies, live)


def distinct_constants(constants: Mapping[Value, Any]) -> list[Value]:
    """Return the constants without duplicates, as XLA merges equal ones."""
    alike: dict[tuple[Any, ...], list[tuple[Value, Any]]] = {}
    for value, array in constants.items():
        alike.setdefault((value.shape, value.dtype), []).append((value, array))
    found: list[Value] = []
    for same in alike.values():
        contents = {_contents_key(array) if len(same) > 1 else None: value for value, array in same}
        found += contents.values()
    return found


def _contents_key(array: Any) -> Hashable:
    """Return a key that is equal for arrays with equal bytes.

    Arrays without readable bytes, such as PRNG keys, have distinct keys.
    """
    try:
        return hashlib.sha256(np.asarray(array).tobytes()).digest()
    except Exception:  # a library's array may raise anything
        return id(array)


def estimate_temporary_bytes(programs: Sequence[Program], returned: Sequence[Value], target: str = "cpu") -> int:
    """Estimate the bytes of temporaries, without arguments and results, of programs that run one after the other.

    Args:
      programs: the programs in order. A program may read values of earlier programs.
    """
    lives = _WrittenRanges(target)
    lives.program(_as_one_program(programs, returned, target))
    return lives.peak_bytes({lives.array(v) for v in returned if not isinstance(v, Literal)}, {})


def _as_one_program(programs: Sequence[Program], returned: Sequence[Value], target: str) -> Program:
    """Join programs that run one after the other into the single program that XLA compiles."""
    return rewrite_as_hlo(
        Program(programs[0].inputs, [e for program in programs for e in program.equations], tuple(returned)),
        target,
    )


class _WrittenRanges(LiveRanges):
    """The live ranges of the values that XLA writes to memory."""

    def __init__(self, target: str, aliased: Mapping[Value, Value] | None = None):
        super().__init__()
        self._aliased = aliased or {}
        self._start = 0  # the step at which the current level begins
        self._in_backward_body = False  # whether a loop or a cond of the backward pass contains the current level
        self._free: dict[Value, int] = {}  # for each copied donated argument, the step after the copy
        self._target = target
        self._fused = Fused()
        self._known: dict[tuple[Value, bool], list[Value]] = {}  # results of `_memory_operands` for the current program
        self._slices: set[Value] = set()  # slices of stacks that nothing has read yet
        self._products: set[Value] = set()
        self._before: tuple[Value, ...] = ()
        self._shared: set[Value] = set()  # arrays that are written in place, whose buffers hold no other value
        self._scratch: list[tuple[int, int, int]] = []  # the first step, the last step and the bytes of scratch memory

    def use(self, value: Value, step: int) -> None:
        for written in self._memory_operands(value, False):
            array = self.array(written)
            if array in self._slices:
                self._slices.remove(array)
                self._made[array] = len(self.steps)
            super().use(array, step)

    def _memory_operands(self, value: Value, by_kernel: bool) -> list[Value]:
        """Return the values in memory from which a reader computes its operand.

        This is the operand itself if it is written to memory for this reader; otherwise, the operands of the fusion.

        Args:
          by_kernel: whether the reader's kernel can compute cheap operands itself.
        """
        if isinstance(value, Literal):
            return []
        known, fused = self._known, self._fused
        pending = [first := (self.array(value), by_kernel)]
        while pending:
            array, by_kernel = asked = pending.pop()
            if asked in known:
                continue
            maker = fused.fused_away.get(array) or (fused.duplicated.get(array) if by_kernel else None)
            if maker is None:
                known[asked] = [array]
                continue
            by_kernel = maker not in fused.by_library
            parts = [(self.array(v), by_kernel) for v in maker.inputs if not isinstance(v, Literal)]
            if unknown := [part for part in parts if part not in known]:
                pending += [asked, *unknown]
            elif len(parts) == 1:
                known[asked] = known[parts[0]]
            else:
                known[asked] = list(dict.fromkeys(itertools.chain.from_iterable(known[part] for part in parts)))
        return known[first]

    def _buffers_read(self, equation: Equation) -> list[list[Value]]:
        by_kernel = equation.primitive in FUSES_OPERANDS and equation not in self._fused.by_library
        return [self._memory_operands(value, by_kernel) for value in equation.inputs]

    def program(self, program: Program) -> None:
        level = with_copies(with_flattened(scattered_into(Level(program), self._target), self._target))
        program = level.program
        found = fuse(level, self._target)
        self._fused.fused_away.update(found.fused_away)
        self._fused.duplicated.update(found.duplicated)
        self._fused.by_library.update(found.by_library)
        self._fused.products.update(found.products)
        if self._target == "cpu":
            self._known = {}  # the order may change which values are aliases, so earlier results do not apply
            order = thunk_order(program.equations, found.fused_away, self._buffers_read, self._in_backward_body)
            self._copy_donated(order)
            program = dataclasses.replace(program, equations=order)
        self._known = {}
        before, self._start = self._start, len(self.steps)
        super().program(program)
        self._known, self._start = {}, before

    @contextlib.contextmanager
    def _bodies_of(self, equation: Equation) -> Iterator[None]:
        """Record that the bodies of a loop or a `cond` are the current level."""
        before = self._in_backward_body
        self._in_backward_body = before or bool(equation.role)
        try:
            yield
        finally:
            self._in_backward_body = before

    def _add_cond(self, equation: Equation) -> None:
        """Add all branches; the first branch that computes a result writes it into the result's buffer."""
        before = set(self._made)
        with self._bodies_of(equation):
            super()._add_cond(equation)
        inside = self._made.keys() - before
        for result, *values in zip(equation.outputs, *(body.outputs for body in equation.bodies), strict=True):
            computed = [v for v in values if not isinstance(v, Literal) and self.array(v) in inside]
            if computed and result in self._made:
                del self._made[result]
                self.alias(result, computed[0])

    def _add_loop(self, equation: Equation) -> None:
        with self._bodies_of(equation):
            super()._add_loop(equation)
        self._shared.update(map(self.array, equation.outputs))
        for stack in equation.outputs[equation.carries :] if self._target == "cpu" else ():
            self._made[stack] = self._start  # filled with zeros, which depend on nothing

    def _copy_donated(self, equations: Sequence[Equation]) -> None:
        """Copy the donated arguments that are read after they may be overwritten."""
        aliased, self._aliased = self._aliased, {}
        for argument in copied_arguments(equations, self._buffers_read, aliased, CAN_ALIAS_OPERAND):
            self.define([argument])
            self.steps.append("copy")
            self._free[argument] = len(self.steps)

    def _note_slices(self, slices: Iterable[Value]) -> None:
        self._slices |= set(slices)

    def _add_operation(self, equation: Equation) -> None:
        if equation.outputs and all(v in self._fused.fused_away for v in equation.outputs):
            return
        if self._is_view(equation):
            (array,) = (v for v in equation.inputs if not isinstance(v, Literal))
            self.alias(equation.outputs[0], array)
            return
        step = len(self.steps)
        in_place = equation.primitive in CAN_ALIAS_OPERAND and equation not in self._fused.by_library
        product = self._fused.products.get(equation)
        waiting = self._shared.union(*self._buffers_read(product)) if product else self._shared
        for i, values in enumerate(self._buffers_read(equation)):
            for value in values:
                over = in_place and self.array(value) not in waiting
                self.use(value, step if over or (equation.primitive in UPDATES and i == 0) else step + 1)
        self.define(equation.outputs)
        if equation.primitive in UPDATES or equation.primitive == "gather":
            self._shared.update(equation.outputs)  # a gathered array has additional axes, which its readers remove
        if equation.primitive in MATMULS:
            for value in self._before if self._target == "gpu" else ():
                self.use(value, step + 1)
            self._before = equation.inputs
            self._products.update(equation.outputs)
        if equation.primitive == "ragged_dot_general" and self._target == "gpu":
            self._scratch.append((step, step, _ragged_dot_temp_bytes(equation)))
        self.steps.append(equation)

    def _is_view(self, equation: Equation) -> bool:
        if equation.primitive in VIEWS:
            return not isinstance(equation.inputs[0], Literal)
        if equation.primitive != "transpose" or self.array(equation.inputs[0]) in self._fused.fused_away:
            return False
        array = self.array(equation.inputs[0])
        return array not in self._made or array in self._products

    def peak_bytes(self, results: Iterable[Value], overwritten: Mapping[Value, Value]) -> int:
        """Return the maximum bytes of live temporaries that are not in a result's buffer."""
        found = Allocations(self.steps, (), (), 0, self.live(results, overwritten))
        return max(found.temporary_bytes, default=0)

    def live(self, results: Iterable[Value], overwritten: Mapping[Value, Value]) -> list[Allocation]:
        """Return the temporaries that are not in a result's buffer.

        As in XLA, values are allocated by decreasing size, each in the first result's buffer that is free during the
        value's live range.

        Args:
          results: values with a buffer of their own.
          overwritten: results that reuse a donated argument's buffer, and the argument. The buffer is free once the
            argument is no longer read.
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
        buffers = FirstFit(donated if is_tpu(self._target) else [*own, *donated])
        found: list[Allocation] = []
        others = [v for v in self._made if bytes_of[v] and v not in results and v not in overwritten]
        for value in sorted(others, key=lambda v: (-bytes_of[v], self._made[v])):
            made = self._made[value]
            last = max(made + 1, min(self._last.get(value, made), end))
            if not buffers.allocate(bytes_of[value], made, last):
                found.append(Allocation(value, made, last, bytes_of[value]))
        found += [Allocation(None, start, step + 1, nbytes) for start, step, nbytes in self._scratch]
        return found


def target_notes(passes: Trace, target: str) -> list[str]:
    """Return sentences about operations that need additional memory on a target because of how it compiles them."""
    if is_tpu(target):
        return []
    there = {e.primitive for program in programs_of(passes) for e, _ in program.walk()}
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


def _ragged_dot_temp_bytes(equation: Equation) -> int:
    """Return the bytes that a GPU's ragged dot needs while it runs, in addition to its operands and results."""
    lhs, rhs, groups = equation.inputs[:3]
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (contracting, _), _ = numbers.dot_dimension_numbers
    dense = lhs.device_bytes
    if set(numbers.lhs_ragged_dimensions) & set(contracting):
        dense += rhs.device_bytes
    return 2 * int(groups.shape[-1]) * dense

"""Emit a backward program in which each recomputed operation directly precedes its first reader.

`schedule.py` explains why the emitted program computes the same results as JAX's, and why it needs the barriers.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

import jax
import jax.numpy as jnp

from rematscope import jax_compat
from rematscope.ir.primitives import MATMULS
from rematscope.ir.program import Equation, Literal, Program, Value, reading
from rematscope.memory.xla_estimate.broadcasts import value_like
from rematscope.memory.xla_estimate.fusion import is_usually_fused
from rematscope.scheduling.fusion import FUSED_INTO_READERS
from rematscope.scheduling.linearize import substitute_values


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The recomputed values that are live at one point of the backward program, in addition to the saved ones.

    Attributes:
      at: the number of operations of the backward program that run before this point.
      live: values of the primal program. If a value is not live yet, it is recomputed here. All recomputed values that
        are not in `live` are dropped. They are recomputed before their next readers; on a TPU, already here if a reader
        comes before the next snapshot.
    """

    at: int
    live: tuple[Value, ...]


@dataclasses.dataclass
class EmissionState:
    """The facts that a backward program and the bodies of its loops share while they are emitted.

    Attributes:
      saved: the values that the forward pass saves, stacks of loops included.
      on_tpu: whether the program is compiled for a TPU.
      fetches: maps each offloaded value to the operation that fetches it.
      on_host: the values in host memory.
      read_stacks: the stacks that backward loops read. Primal loops are not rerun to recompute these stacks.
      latest: maps each value that is recomputed more than once to its latest copy.
      copies: maps each of these copies to the value of the primal program.
    """

    saved: frozenset[Value]
    on_tpu: bool
    fetches: dict[Value, Equation]
    on_host: Collection[Value]
    read_stacks: set[Value] = dataclasses.field(default_factory=set)
    latest: dict[Value, Value] = dataclasses.field(default_factory=dict)
    copies: dict[Value, Value] = dataclasses.field(default_factory=dict)

    def with_new_results(self, equation: Equation) -> Equation:
        """Return a copy of an operation with new result values, which later operations read."""
        outputs = []
        for value in equation.outputs:
            copy = value_like(value)
            self.latest[value] = copy
            self.copies[copy] = value
            outputs.append(copy)
        return dataclasses.replace(equation, outputs=tuple(outputs))


class BackwardEmitter:
    """Emits one backward program: that of a function, or the body of a loop.

    Attributes:
      equations: the operations so far, with recomputed ones and barriers.
      used: the saved values and the inputs of the loop's body that these equations read.
    """

    def __init__(
        self,
        backward: Program,
        primal: Program,
        newest: Iterable[Value],
        state: EmissionState,
        *,
        emit_loop: Callable[[Equation], Equation],
        is_loop: Callable[[Equation], bool],
        body_inputs: Collection[Value] = (),
        snapshots: Sequence[Snapshot] = (),
    ):
        """Args:
        backward, primal: the two programs; `backward` reads values of `primal`.
        newest: the cotangents that are the inputs of the backward program.
        body_inputs: for a loop's body, its inputs, which the primal program cannot recompute.
        snapshots: the points at which recomputed values are dropped, in order.
        """
        self.equations: list[Equation] = []
        self.used: dict[Value, None] = {}
        self._backward, self._state, self._body_inputs = backward, state, body_inputs
        self._emit_loop, self._is_loop = emit_loop, is_loop
        self._snapshots = deque(snapshots)
        # On a TPU the values that are read before the next snapshot are recomputed together.
        self._in_blocks = state.on_tpu and bool(snapshots)
        self._arguments = {*primal.inputs, *primal.constants}
        self._maker_of = {v: e for e in primal.equations for v in e.defines}
        fetched = {v: e for v, e in state.fetches.items() if v in self._maker_of or v in body_inputs}
        self._maker_of |= fetched
        # The recomputed operations whose results are live, and all operations that were recomputed so far.
        self._live: set[Equation] = set()
        self._ran: set[Equation] = set()
        self._snapshot_values: Collection[Value] = ()
        # The number of heavy operations before a value was recomputed, or went through a barrier.
        self._since: dict[Value, int] = {}
        self._heavy_count = 0
        newest = list(newest)
        self._cotangents = {*newest, *(v for e in backward.equations for v in e.outputs if is_cotangent(v))}
        self._newest = next(iter(newest), None)
        self._last_reader = _last_heavy_reader(backward)
        self._weight_gradients = _weight_gradients(backward)
        self._new_gradients: list[Value] = []  # since the latest heavy operation
        self._unheld = [v for v in newest if v in self._last_reader]  # cotangents that went through no barrier yet

    def emit(self) -> tuple[list[Equation], list[Value]]:
        """Return the equations, including barriers, and the saved values and body inputs that they read."""
        loops = dict[Equation, Equation]()
        for i, equation in enumerate(self._backward.equations):
            start = len(self.equations)
            is_start = self._pass_snapshots(i) or not i
            if self._in_blocks and is_start:
                stretch = self._backward.equations[i : self._snapshots[0].at if self._snapshots else None]
                loops |= {e: self._emit_loop(e) for e in stretch if self._is_loop(e)}
                self._recompute_block([loops.get(e, e) for e in stretch], start)
            if self._is_loop(equation):
                equation = loops.get(equation) or self._emit_loop(equation)
            self._emit_operation(equation)
        self._demand_values(v for v in self._backward.outputs if not isinstance(v, Literal))
        return self.equations, list(self.used)

    def _emit_operation(self, equation: Equation) -> None:
        """Emit an operation of the backward program, after the recomputed operations and barriers for its operands."""
        self._demand_values(reading(equation))
        if not self._in_blocks:
            if is_heavy(equation):
                self._fence_operands(equation)  # otherwise, XLA would transpose the operands early
                self._hold_gradients(equation)
            else:
                self._hold_cheap_values(equation)
                if equation in self._weight_gradients:
                    self._note_gradients(equation)
        self._append_equation(equation)
        self._heavy_count += is_heavy(equation)
        self._unheld += [v for v in equation.outputs if v in self._last_reader]
        self._newest = next((v for v in equation.outputs if is_cotangent(v)), self._newest)

    def _append_equation(self, equation: Equation) -> None:
        latest = self._state.latest
        self.equations.append(substitute_values(equation, latest) if latest else equation)

    def _append_barrier(self, values: Iterable[Value], equation: Equation) -> None:
        held = tuple(values)
        self._append_equation(Equation("optimization_barrier", held, held, {}, equation.eqn))

    # Snapshots

    def _pass_snapshots(self, i: int) -> bool:
        """Apply the snapshots before an operation, and return whether there are any.

        A snapshot recomputes its own values and drops all other recomputed values.
        """
        passed = False
        while self._snapshots and self._snapshots[0].at <= i:
            live = self._snapshot_values = self._snapshots.popleft().live
            self._demand_values(live)
            self._live.intersection_update(self._maker_of[v] for v in live)
            passed = True
        return passed

    def _recompute_block(self, stretch: Sequence[Equation], start: int) -> None:
        """Recompute all values that a stretch of operations reads, with one barrier at `start` before all equations."""
        self._demand_values(v for e in stretch for v in reading(e))
        read = dict.fromkeys(v for e in (*self.equations[start:], *stretch) for v in reading(e))
        asked = [v for v in read if (v in self.used or v in self._arguments) and _can_pass_barrier(v)]
        if asked and self._newest is not None:
            held = (*asked, self._newest)
            self.equations.insert(start, Equation("optimization_barrier", held, held, {}, stretch[0].eqn))

    # Recomputation

    def _demand_values(self, values: Iterable[Value]) -> None:
        """Recompute the values that are not available, after the values they depend on, in the order of their use."""
        pending: list[tuple[Iterable[Value], Equation | None]] = [(iter(values), None)]
        while pending:
            operands, equation = pending[-1]
            for value in operands:
                if not self._is_available(value):
                    maker = self._maker_of[value]
                    self._live.add(maker)
                    pending.append((iter(reading(maker)), maker))
                    break
            else:
                pending.pop()
                if equation is not None:
                    self._recompute_equation(equation)

    def _recompute_equation(self, equation: Equation) -> None:
        self._fence_operands(equation)
        self._append_equation(equation)
        if equation in self._ran or self._in_blocks:
            self.equations[-1] = self._state.with_new_results(self.equations[-1])
        self._ran.add(equation)
        # Without a barrier, XLA would merge an iota, and all values computed from it, with those of the forward pass.
        since = -1 if equation.primitive == "iota" else self._heavy_count
        self._since.update(dict.fromkeys(equation.outputs, since))

    def _is_available(self, value: Value) -> bool:
        """Return whether a value is available without recompute, and record that it is used."""
        state, maker = self._state, self._maker_of.get(value)
        if (
            value in state.read_stacks
            or value in state.on_host
            or (value in self._body_inputs and value not in state.fetches)
            or (maker is not None and (value in state.saved or not jax_compat.is_repeatable(maker.eqn)))
        ):
            self.used[value] = None
            return True
        return maker is None or maker in self._live

    # Barriers

    def _fence_operands(self, equation: Equation) -> None:
        """Put an operation's operands from earlier parts of the program behind a barrier with the newest cotangent."""
        if self._in_blocks or self._newest is None:
            return
        asked = [v for v in reading(equation) if self._is_early(v, equation) and _can_pass_barrier(v)]
        if asked:
            self._since.update(dict.fromkeys(asked, self._heavy_count))
            later = [v for v in self._unheld if v is not self._newest and self._last_reader[v] > self._heavy_count]
            self._unheld.clear()
            self._append_barrier((*asked, self._newest, *later), equation)

    def _is_early(self, value: Value, reader: Equation) -> bool:
        """Return whether a value was computed, or last passed a barrier, before the latest heavy operation."""
        is_given = value in self.used or value in self._arguments or value in self._snapshot_values
        if value not in self._since:
            return is_given
        since, maker = self._since[value], self._maker_of.get(value)
        if maker is not None and maker.primitive == "iota":
            return since < 0
        if is_given or since >= self._heavy_count:
            return since < self._heavy_count
        assert maker is not None, "a value that is not given was recomputed"
        if self._state.on_tpu:  # a barrier forces elementwise results to memory, which its matmuls would fuse
            return is_heavy(reader) and maker.primitive not in FUSED_INTO_READERS
        return not is_usually_fused(maker)

    def _hold_cheap_values(self, equation: Equation) -> None:
        """Put barriers around saved values that XLA would otherwise recompute from larger operands, which stay live."""
        asked = tuple(v for v in reading(equation) if self._is_cheaply_recomputed(v) and _can_pass_barrier(v))
        if asked:
            self._since.update(dict.fromkeys(asked, self._heavy_count))
            self.equations.append(Equation("optimization_barrier", asked, asked, {}, equation.eqn))

    def _is_cheaply_recomputed(self, value: Value) -> bool:
        """Return whether XLA would recompute a saved value from operands with more bytes.

        A stack is not recomputed in this way, because a loop always writes its stacks.
        """
        if self._body_inputs or value not in self.used or value in self._since or value not in self._maker_of:
            return False
        maker = self._maker_of[value]
        if maker.primitive not in FUSED_INTO_READERS:
            return False
        others = (v for v in reading(maker) if v not in self._state.saved and v not in self._arguments)
        return sum(v.device_bytes for v in others) > value.device_bytes

    def _note_gradients(self, equation: Equation) -> None:
        self._new_gradients += [v for v in equation.outputs if is_cotangent(v)]

    def _hold_gradients(self, equation: Equation) -> None:
        """Put the cotangents that a heavy operation reads behind a barrier with the gradients computed before it."""
        if equation in self._weight_gradients:
            self._note_gradients(equation)
            return
        behind = [v for v in reading(equation) if v in self._cotangents]
        if self._new_gradients and behind:
            self._append_barrier((*behind, *self._new_gradients), equation)
        self._new_gradients.clear()


def is_heavy(equation: Equation) -> bool:
    """Return whether an operation takes so long that values read after it should be recomputed after it."""
    return equation.primitive in MATMULS or equation.primitive == "scan"


def is_cotangent(value: Value) -> bool:
    """Return whether a value can be a cotangent that a barrier waits for."""
    is_array = not isinstance(value, Literal) and not jax_compat.is_mutable_array(value.aval)
    return is_array and jnp.issubdtype(value.dtype, jnp.inexact)


def _can_pass_barrier(value: Value) -> bool:
    return not (jax_compat.is_mutable_array(value.aval) or jnp.issubdtype(value.dtype, jax.dtypes.extended))


def _weight_gradients(backward: Program) -> set[Equation]:
    """Return the matmuls and sums that no heavy operation depends on: gradients of weights, biases and scales."""
    leading: set[Value] = set()
    found: set[Equation] = set()
    for equation in reversed(backward.equations):
        leads = not leading.isdisjoint(equation.outputs)
        if not leads and (is_heavy(equation) or equation.primitive == "reduce_sum"):
            found.add(equation)
        if leads or is_heavy(equation):
            leading.update(reading(equation))
    return found


def _last_heavy_reader(backward: Program) -> dict[Value, int]:
    """Return, for cotangents that are read after a heavy operation, the number of these before the last reader."""
    heavy, made, last = 0, dict.fromkeys(backward.inputs, 0), dict[Value, int]()
    for equation in backward.equations:
        last.update((v, heavy) for v in reading(equation) if v in made)
        heavy += is_heavy(equation)
        made.update(dict.fromkeys(equation.outputs, heavy))
    return {v: count for v, count in last.items() if count > made[v] and is_cotangent(v)}

"""A 0/1 program that chooses which values to save so that the peak of the backward pass stays within a limit.

The steps are the operations of the backward program; the body of a loop counts once. Several steps form a bin. A value
that is not saved is recomputed when a step, or another recomputed operation, first reads it. It is then live until its
last reader. So each operation e has one variable per bin, r[e, t], which is 1 if e was recomputed in bin t or earlier.
The variable x[v] is 1 if the value v is saved.

* Values that a step reads are saved or recomputed:              r[e, t] ≥ 1 − x[v]
* The same holds for values that a recomputed operation reads:   r[e, t] ≥ r[reader, t] − x[v]
* In each bin, saved and recomputed values fit in memory:        Σ bytes · x[v] + Σ bytes · r[e, t] ≤ limit − cotangents

Only the x have to be integers. Checkmate (Jain et al., MLSys 2020) decides at each step which values are live. Here, a
value is recomputed once, in the order of `rematscope.scheduling.schedule`, so the program needs fewer variables: one
per operation and bin in which the operation may first be recomputed.
"""

import math
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

from rematscope import jax_compat
from rematscope.choices.build import CostFunction, work
from rematscope.choices.highs import milp_neighborhood, sparse_rows
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import Equation, Value, reading
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.fusion import FUSED_INTO_READERS, HEAVY, Fusion
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.settings import SETTINGS

MIB = 2.0**20


class PeakSolution(NamedTuple):
    """A solution of the 0/1 program.

    Attributes:
      saved: the values that are saved.
      moved: the saved values that are offloaded to the host.
      bound: a proven lower bound on the recompute of all choices of the 0/1 program within the limits.
    """

    saved: frozenset[Value]
    moved: frozenset[Value]
    bound: float


class PeakProgram:
    """The 0/1 program of a function, which is built once and solved for many limits.

    Attributes:
      fixed: values that are always saved. So no operation before them is recomputed for a step after them.
      saveable: the values that may be saved, in the order of the program.
      cost: the cost of recomputing an operation.
      moves: the columns of the values that may be offloaded; see `rematscope.scheduling.host`.
      waits: the number of columns at the end for the time spent waiting for transfers.
    """

    def __init__(self, linearized: Linearized, fixed: Collection[Value] = (), cost: CostFunction = work):
        self.moves: dict[Value, int] = {}
        self.waits = 0
        self.linearized = linearized
        self.cost, self._cost_of = cost, cost_in(linearized, cost)
        self.fixed = frozenset(fixed)
        self._number_steps()
        self._find_needed()
        self._find_windows()
        self.saveable = tuple(v for e in self._nodes for v in e.outputs if self._worth_keeping(e, v))
        self.saveable += tuple(v for loop in self._loops for v in loop.bodies[0].inputs[: loop.carries])

    # Steps and bins

    def _number_steps(self) -> None:
        """Number the steps of the backward program, and divide them into bins after heavy operations."""
        self._loops = list(dict.fromkeys(self.linearized.loops.values()))
        self._steps: list[Equation] = []
        spans: dict[Equation, tuple[int, int]] = {}
        for equation in self.linearized.backward.equations:
            if (loop := self.linearized.loops.get(equation)) is None:
                self._steps.append(equation)
                continue
            start = len(self._steps)
            self._steps += equation.bodies[0].equations
            before = spans.get(loop, (start, start))
            spans[loop] = min(start, before[0]), max(len(self._steps) - 1, start)
        heavy = [e.primitive in HEAVY for e in self._steps]
        each = max(1.0, sum(heavy) / SETTINGS.bins)
        self._bin_of = [int(sum_ / each) for sum_ in np.cumsum(heavy) - np.array(heavy, int)] or [0]
        self._bins = self._bin_of[-1] + 1
        self._span = {
            loop: (self._bin_of[a], self._bin_of[min(b, len(self._bin_of) - 1)]) for loop, (a, b) in spans.items()
        }

    def _find_needed(self) -> None:
        """Find the operations that are recomputed if nothing is saved, and the bins whose steps read each value."""
        self._index_values()
        self._asked: dict[Value, list[int]] = {}  # for each value, the bins of the steps that read it
        demands = [(v, bin_) for e, bin_ in zip(self._steps, self._bin_of, strict=False) for v in reading(e)]
        demands += [(v, self._bins - 1) for v in self.linearized.backward.outputs]
        for read, at in demands:
            value, bin_ = self._stack_of_slice(read, at)
            self._asked.setdefault(value, []).append(bin_)
        needed: set[Equation] = set()
        pending = [*self._asked]
        while pending:
            value = pending.pop()
            maker = self._made.get(value)
            if maker is not None and maker not in needed and value not in self.fixed:
                needed.add(maker)
                pending += (self._stack_of_slice(v, 0)[0] for v in reading(maker))
        nodes = [e for e in self._home if e in needed]
        order = {e: i for i, e in enumerate(self._home)}
        self._nodes = sorted(nodes, key=lambda e: (order[self._home[e] or e], order[e]))

    def _index_values(self) -> None:
        """Map operations to the loops that contain them, values to their operations, and slices to their stacks."""
        primal = self.linearized.primal
        self._home: dict[Equation, Equation | None] = dict.fromkeys(primal.equations)
        self._home |= {e: loop for loop in self._loops for e in loop.bodies[0].equations}
        self._made = {v: e for e in self._home for v in e.defines}
        self._slices: dict[Value, Value] = {}
        for loop in self._loops:
            self._slices.update(zip(loop.bodies[0].inputs[loop.carries :], loop.stacked_inputs, strict=True))

    def _stack_of_slice(self, value: Value, bin_: int) -> tuple[Value, int]:
        """Return the value that a read needs, and the bin from which: for a slice, its stack when the loop begins."""
        while value in self._slices:
            bin_ = self._span.get(self.linearized.loop_of[value], (bin_, bin_))[0]
            value = self._slices[value]
        return value, bin_

    def _find_windows(self) -> None:
        """Find the bins in which an operation may first be recomputed, and the last bin that reads its results."""
        readers: dict[Value, list[Equation]] = {}
        for equation in self._nodes:
            for value in reading(equation):
                readers.setdefault(self._stack_of_slice(value, 0)[0], []).append(equation)
        outputs = set(self.linearized.backward.outputs)
        self._fusion = Fusion([self._nodes, self._steps], outputs)
        first: dict[Equation, int] = {}
        last: dict[Equation, int] = {}
        self._end: dict[Value, int] = {}

        def end(value: Value) -> int:
            """Return the last bin that reads a value, directly or through an operation that the value is fused into."""
            by = [e for e in readers.get(value, ()) if e in first]
            found = [*self._asked.get(value, ())]
            for reader in by:
                runs = self._bin_of_demand(reader, value, last[reader])
                for made in reader.outputs:
                    found.append(self._end.get(made, 0) if made in self._fusion.unwritten else runs)
            return max(found, default=0)

        for equation in reversed(self._nodes):
            starts: list[int] = []
            ends: list[int] = []
            for value in equation.outputs:
                asked = self._asked.get(value, [])
                by = [e for e in readers.get(value, ()) if e in first]
                if value not in self.fixed:
                    starts += [min(asked, default=self._bins), *(self._bin_of_demand(e, value, first[e]) for e in by)]
                    ends += [*asked[:1], *(self._bin_of_demand(e, value, last[e]) for e in by)]
                self._end[value] = end(value)
            first[equation], last[equation] = min(starts), max([min(starts), *ends])
        self._first, self._last = first, last
        self._end |= {value: end(value) for value in self.fixed}
        for loop in self._loops:
            for value in loop.bodies[0].inputs[: loop.carries]:
                self._end[value] = self._span.get(loop, (0, self._bins - 1))[1]

    def _bin_of_demand(self, reader: Equation, value: Value, bin_: int) -> int:
        """Return the bin in which a reader needs a value: a result from outside of its loop, when the loop begins."""
        loop, maker = self._home[reader], self._made.get(value)
        if loop is None or maker is None or self._home[maker] is loop:
            return bin_
        return self._span.get(loop, (bin_, bin_))[0]

    def _worth_keeping(self, equation: Equation, value: Value) -> bool:
        """Return whether a value may be worth saving.

        A view or a cast is not worth saving if its operand is no larger. An elementwise result that only the backward
        pass reads is not worth saving either, because its operands are read in the backward pass anyway.
        """
        if value in self.fixed or not jax_compat.is_repeatable(equation.eqn) or not value.device_bytes:
            return False
        if equation in self.linearized.deferred and equation.primitive in FUSED_INTO_READERS:
            return False
        sources = reading(equation)
        moved = equation.primitive in VIEWS or equation.primitive in ("transpose", "broadcast_in_dim", "rev")
        if moved or equation.primitive == "convert_element_type":
            return bool(sources) and value.device_bytes < sources[0].device_bytes
        return equation.primitive != "iota"

    # The program

    def weight(self, value: Value) -> int:
        """Return the bytes of a saved value; for a value in a loop, those of all iterations."""
        loop = self.linearized.loop_of.get(value)
        return value.device_bytes * (loop.length if loop is not None else 1)

    @cached_property
    def costs(self) -> dict[Equation, float]:
        """The cost of recomputing each operation, over all iterations of its loop; 0 if JAX defers it anyway."""
        times = {e: 1 if (loop := self._home[e]) is None else loop.length for e in self._nodes}
        return {e: 0.0 if e in self.linearized.deferred else n * self._cost_of(e) for e, n in times.items()}

    @cached_property
    def _cotangent_bytes(self) -> list[int]:
        """The maximum bytes of live cotangents in each bin, plus the bytes of the fixed values."""
        outputs = set(self.linearized.backward.outputs)
        own = {v: i for i, e in enumerate(self._steps) for v in e.outputs}
        last = dict(own)
        for i, equation in enumerate(self._steps):
            for value in reading(equation):
                for there in self._fusion.stands_for(value):
                    if there in own:
                        last[there] = i
        live = np.zeros(len(self._steps) + 1)
        for value, i in own.items():
            if value not in outputs and value not in self._fusion.unwritten:
                live[i : last[value] + 1] += value.device_bytes
        most = [0] * self._bins
        for i, bin_ in enumerate(self._bin_of[: len(self._steps)]):
            most[bin_] = max(most[bin_], int(live[i]))
        for value in self.fixed:
            for bin_ in range(self._end[value] + 1):
                most[bin_] += value.device_bytes
        return most

    @cached_property
    def _column_layout(self) -> tuple[dict[Value, int], dict[Equation, int], int]:
        x = {v: i for i, v in enumerate(self.saveable)}
        place, r = len(x), {}
        for equation in self._nodes:
            r[equation] = place - self._first[equation]
            place += self._last[equation] - self._first[equation] + 1
        return x, r, place

    def _ran_column(self, equation: Equation, bin_: int) -> int | None:
        """Return the column of r[equation, bin]; None for a bin before the operation can be recomputed."""
        if bin_ < self._first[equation]:
            return None
        return self._column_layout[1][equation] + min(bin_, self._last[equation])

    @cached_property
    def _implication_rows(self) -> tuple[scipy.sparse.csc_array, np.ndarray]:
        """The rows that require values to be saved or recomputed, and their lower bounds."""
        x, _, size = self._column_layout
        rows: list[tuple[dict[int, float], float]] = []
        for equation, place in self._column_layout[1].items():  # a recomputed operation stays recomputed
            for bin_ in range(self._first[equation], self._last[equation]):
                rows.append(({place + bin_ + 1: 1.0, place + bin_: -1.0}, 0.0))
        for value, bins in self._asked.items():
            self._add_row(rows, value, min(bins), None)
        for reader in self._nodes:
            loop = self._home[reader]
            for value in reading(reader):
                source = self._stack_of_slice(value, 0)[0]
                if source in x or source in self._made:
                    if loop is not None and self.linearized.loop_of.get(source) is not loop:
                        start = self._span.get(loop, (0, 0))[0]
                        self._add_row(rows, source, start, self._ran_column(reader, self._last[reader]))
                        continue
                    for bin_ in range(self._first[reader], self._last[reader] + 1):
                        self._add_row(rows, source, bin_, self._ran_column(reader, bin_))
        return sparse_rows([row for row, _ in rows], size), np.array([bound for _, bound in rows])

    def _add_row(self, rows: list, value: Value, bin_: int, reader: int | None) -> None:
        """Add the row that requires a value to be saved, or recomputed by a bin.

        If `reader` is a column, the row applies only if that operation is recomputed; if it is None, always.
        """
        if value in self.fixed:
            return
        x, row = self._column_layout[0], {}
        if reader is not None:
            row[reader] = -1.0
        if value in x:
            row[x[value]] = 1.0
        made = self._made.get(value)
        if made is not None and made in self._first and jax_compat.is_repeatable(made.eqn):
            there = self._ran_column(made, bin_)
            if there is not None:
                row[there] = row.get(there, 0) + 1.0
        if any(c > 0 for c in row.values()):
            rows.append((row, 1.0 if reader is None else 0.0))

    @cached_property
    def _peak_rows(self) -> tuple[scipy.sparse.csc_array, np.ndarray]:
        """The MiB that each column adds to each bin, and the MiB that are live in each bin for every choice."""
        x, _, size = self._column_layout
        i: list[int] = []
        j: list[int] = []
        c: list[float] = []
        for value, place in x.items():
            loop = self.linearized.loop_of.get(value)
            end = self._end.get(value, 0) if loop is None else self._span.get(loop, (0, self._bins - 1))[1]
            i += range(end + 1)
            j += [place] * (end + 1)
            c += [self.weight(value) / MIB] * (end + 1)
        for equation in self._nodes:
            nbytes = sum(v.device_bytes for v in equation.outputs if v not in self._fusion.unwritten)
            end = max((self._end.get(v, 0) for v in equation.outputs), default=0)
            if nbytes:
                first, start = self._first[equation], self._column_layout[1][equation]
                for bin_ in range(first, end + 1):
                    i.append(bin_)
                    j.append(start + min(bin_, self._last[equation]))
                    c.append(nbytes / MIB)
        return scipy.sparse.csc_array((c, (i, j)), shape=(self._bins, size)), np.array(self._cotangent_bytes) / MIB

    @cached_property
    def _saved_bytes_row(self) -> np.ndarray:
        size = self._column_layout[2]
        row = np.zeros(size)
        row[: len(self.saveable)] = [self.weight(v) / MIB for v in self.saveable]
        return row

    def best(
        self, *, peak: float | None = None, saved: float | None = None, gap: float | None = None, price: float = 0
    ) -> PeakSolution | None:
        """Return the choice with the least recompute; None if the solver finds no choice.

        Args:
          peak: the limit on the live bytes in every bin; None for no limit.
          saved: the limit on the saved bytes; None for no limit.
          gap: the relative gap to the bound at which the solver may stop; None for the gap of the settings.
          price: the recompute cost that saving one byte must at least avoid.
        """
        rows, given = self._peak_rows
        limited = []
        if peak is not None:
            limited.append((rows, peak / MIB - given))
        if saved is not None:
            limited.append((scipy.sparse.csc_array(self._saved_bytes_row[None]), np.array([saved / MIB])))
        if not rows.shape[1]:  # there is nothing to save or to recompute
            exceeded = peak is not None and (given > peak / MIB).any()
            return None if exceeded else PeakSolution(self.fixed, frozenset(), 0.0)
        unit = self._cost_row.max(initial=0.0) or 1.0
        # Of equal choices, prefer the choice that saves less; the solver stops at differences of 1e-6.
        less = np.abs(self._saved_bytes_row) * (
            price * MIB / unit + 1e-4 / max(np.abs(self._saved_bytes_row).sum(), 1e-9)
        )
        result = self._solve_program(
            self._cost_row / unit + less, limited, gap=SETTINGS.peak_gap if gap is None else gap
        )
        if result.x is None:
            return None
        chosen = frozenset(v for v, on in zip(self.saveable, result.x, strict=False) if on > 0.5)
        moved = frozenset(v for v, h in self.moves.items() if result.x[h] > 0.5)
        bound = result.mip_dual_bound
        if bound is None:  # HiGHS returns no bound for a program that needs no branching
            bound = result.fun if result.status == 0 else -math.inf
        return PeakSolution(chosen | self.fixed, moved, max(0.0, (bound - less.sum()) * unit))

    @cached_property
    def least(self) -> float:
        """The approximate smallest peak, in bytes, of any choice in this model; infinite if no choice is found."""
        rows, given = self._peak_rows
        level = scipy.sparse.csc_array(np.full((self._bins, 1), -1.0))  # an additional column for the peak
        above = scipy.sparse.hstack([rows, level], format="csc")
        result = self._solve_program(np.append(np.zeros(rows.shape[1]), 1.0), [(above, -given)], whole=False)
        # The relaxed program saves fractions of values, so its peak may be too low for a choice of whole values.
        limits = (more * result.fun * MIB for more in (1.02, 1.05, 1.1, 1.25, 1.5, 2.0) if result.x is not None)
        return next((limit for limit in limits if self.best(peak=limit) is not None), math.inf)

    @cached_property
    def least_saved(self) -> int:
        """The saved bytes of the choice that saves the fewest, as far as the solver finds it."""
        row = self._saved_bytes_row
        found = self._solve_program(row, []).x
        return round(MIB * float(np.maximum(row, 0).sum() if found is None else row @ found))

    def smallest(self) -> PeakSolution:
        """Return a solution whose peak is near the smallest peak in this model."""
        found = self.best(peak=self.least) if math.isfinite(self.least) else None
        return found or PeakSolution(self.fixed, frozenset(), 0.0)

    @cached_property
    def _cost_row(self) -> np.ndarray:
        objective = np.zeros(self._column_layout[2])
        for equation in self._nodes:
            objective[self._column_layout[1][equation] + self._last[equation]] += self.costs[equation]
        return objective

    def _solve_program(
        self,
        objective: np.ndarray,
        limited: Sequence[tuple[Any, np.ndarray]],
        gap: float = 0,
        whole: bool = True,
    ) -> Any:
        """Return the solver's result for an objective; if `whole` is False, fractions of values may be saved."""
        matrix, least = self._implication_rows
        more = len(objective) - matrix.shape[1]
        if more:
            matrix = scipy.sparse.hstack([matrix, scipy.sparse.csc_array((matrix.shape[0], more))], format="csc")
        constraints = [scipy.optimize.LinearConstraint(matrix, least, np.inf)] if len(least) else []
        constraints += [scipy.optimize.LinearConstraint(rows, -np.inf, most) for rows, most in limited]
        integral, upper = np.zeros(len(objective)), np.ones(len(objective))
        integral[[*range(len(self.saveable)), *self.moves.values()]] = whole
        upper[len(objective) - more - self.waits :] = np.inf
        return milp_neighborhood(
            objective,
            integrality=integral,
            bounds=scipy.optimize.Bounds(0, upper),
            constraints=constraints,
            options={"mip_rel_gap": gap, "node_limit": SETTINGS.solver_nodes, "time_limit": SETTINGS.solver_seconds},
        )

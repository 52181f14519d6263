"""The cheapest choice of names under a budget: a 0/1 program for HiGHS, and all choices at once where they are few."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
import scipy

from rematscope.choices.enumeration import are_few, every_choice, least_place, subset
from rematscope.choices.recompute_graph import Part, RecomputeGraph

SOLVER = f"HiGHS, in SciPy {scipy.__version__}"


_SECONDS = 120  # after which HiGHS says how far it is


class ZeroOne:
    """Which names to save, as a 0/1 program.

    Minimise the cost of all that is reached. The variables lie between 0 and 1: `x` for each name (saved or not; whole
    numbers), `r` for each part that may or may not be reached, `k` for each array that several choices may keep.

    * What a reached part reads is reached: r[read] ≥ r[part], and r[read] ≥ r[name] − x[name] behind a name.
    * An array is kept if it is reached and saved: k ≥ r[name] + x[name] − 1; a residual if it is reached: k ≥ r[part].
    * The bytes of what is kept stay within the budget.
    """

    def __init__(self, graph: RecomputeGraph):
        self.graph = graph
        parts = graph.parts
        self._columns: dict[object, int] = {name: i for i, name in enumerate(graph.names)}
        rows: list[dict[int, float]] = []  # each ≥ its bound
        bounds: list[float] = []

        def column(key) -> int:
            return self._columns.setdefault(key, len(self._columns))

        def reached(part: Part, sign: int) -> tuple[dict[int, int], int]:
            """sign × (the part is reached and not saved), as columns and a constant."""
            if part.name is None:
                return {column(part): sign}, 0
            saved = {self._columns[part.name]: -sign}
            return (saved, sign) if part.entry else ({column(part): sign, **saved}, 0)

        def at_least(row: dict[int, int], bound: float) -> None:
            rows.append(row)
            bounds.append(bound)

        for part in parts:
            for reader in part.readers:
                if part.entry:
                    break
                row, constant = reached(reader, -1)
                at_least({**row, column(part): 1}, -constant)
        kept: dict[object, list[Part]] = {}
        for part in parts:
            for array in part.arrays:
                kept.setdefault(array, []).append(part)
        weights: dict[int, int] = {}
        for array, owners in kept.items():
            size = owners[0].arrays[array]
            first = owners[0]
            if len(owners) == 1 and (first.name is None or first.entry or self._once(first.name)):
                # Saving a name that is not reached gains nothing, so a name on one value is saved if it is chosen.
                k = self._columns[first.name] if first.name else column(first)
            else:
                k = column(array)
                for owner in owners:
                    if owner.name is None:
                        at_least({k: 1, column(owner): -1}, 0)
                    elif owner.entry:
                        at_least({k: 1, self._columns[owner.name]: -1}, 0)
                    else:
                        at_least({k: 1, column(owner): -1, self._columns[owner.name]: -1}, -1)
            weights[k] = weights.get(k, 0) + size

        size = len(self._columns)
        self.cost = np.zeros(size, object)
        for part in parts:
            if part.name is None:
                self.cost[self._columns[part]] += part.cost
        self.weights = np.zeros(size, object)
        for k, weight in weights.items():
            self.weights[k] += weight
        places = [(i, j, value) for i, row in enumerate(rows) for j, value in row.items()]
        i, j, values = map(np.array, zip(*places, strict=True)) if places else ((), (), ())
        self.rows = scipy.sparse.csc_array((values, (i, j)), shape=(len(rows), size), dtype=float)
        self.bounds = np.array(bounds, float)

    def _once(self, name: str) -> bool:
        return sum(part.name == name for part in self.graph.parts) == 1

    def cheapest(self, budget: int) -> tuple[tuple[str, ...], float]:
        """The names that are best to save within `budget` bytes, and a cost below which no choice gets.

        Up to `enumeration.FEW` names it is the cost of the choice itself. For more it is what HiGHS proves, in floating
        point: the
        same, unless its time limit stopped it or the costs differ by more than a factor of a million.
        """
        if are_few(self.graph):
            nbytes, cost = self._all
            names = subset(self.graph, least_place(cost, nbytes, nbytes <= budget))
            return self._without_idle(names), self.graph.evaluate(names)[1]
        names, bound = self._solve(self.cost, self.weights, budget - self.graph.least_bytes, lambda c: c[0] <= budget)
        return self._without_idle(names), bound + self.graph.least_cost

    def smallest(self, cost: float) -> tuple[str, ...]:
        """The names that keep the fewest bytes among all choices that recompute no more than `cost`."""
        if are_few(self.graph):
            nbytes, costs = self._all
            return subset(self.graph, least_place(nbytes, costs, costs <= cost))
        most = cost - self.graph.least_cost
        return self._solve(self.weights, self.cost, most, lambda c: c[1] <= cost)[0]

    @cached_property
    def _all(self) -> tuple[np.ndarray, np.ndarray]:
        return every_choice(self.graph)

    def _solve(self, objective, limited, limit, holds) -> tuple[tuple[str, ...], float]:
        """HiGHS's choice of the least `objective` that `holds`, and what it proves the least to be."""
        names = self.graph.names
        scale, unit = _unit(objective, 10**6), _unit(limited, 10**3)
        # At the limit itself, HiGHS's rounding errors have made it miss the best choice by far. Where sums are whole
        # numbers of units, half a unit more lets no other choice in; else a little more may, which is cut off below.
        room = limit // unit + 0.5 if isinstance(unit, int) else limit / unit + 1e-3
        constraints = [scipy.optimize.LinearConstraint((limited / unit).astype(float), -np.inf, float(room))]
        if len(self.bounds):
            constraints.append(scipy.optimize.LinearConstraint(self.rows, self.bounds, np.inf))
        whole = np.zeros(len(self._columns))
        whole[: len(names)] = 1
        while True:
            result = scipy.optimize.milp(
                (objective / scale).astype(float),
                integrality=whole,
                bounds=scipy.optimize.Bounds(0, 1),
                constraints=constraints,
                options={"mip_rel_gap": 0, "time_limit": _SECONDS},
            )
            if result.x is None:
                raise RuntimeError(f"HiGHS found no choice of names: {result.message}")
            on = result.x > 0.5
            chosen = self.graph.helpful(name for name, x in zip(names, on, strict=False) if x)
            if holds(self.graph.evaluate(chosen)):
                break
            # Over the limit, by less than HiGHS sees. Summands that are over it together may not all be there.
            largest = sorted(np.flatnonzero(on), key=limited.__getitem__, reverse=True)
            sums = accumulate(limited[largest])
            over = next((n for n, total in enumerate(sums, 1) if total > limit), len(largest))
            row = np.zeros(len(self._columns))
            row[largest[:over]] = 1
            constraints.append(scipy.optimize.LinearConstraint(row, -np.inf, over - 1))
        # HiGHS's bound has rounding errors too; whole numbers of units hide them.
        bound = result.mip_dual_bound
        bound = math.ceil(bound - 0.1) if isinstance(scale, int) else bound - 1
        return chosen, bound * scale

    def multipliers(self, budget: int) -> tuple[int, ...]:
        """A price for each row and for the budget, with which `proven` gives the best bound.

        They are those of the program whose names may be saved in part, in the units that HiGHS is given, times 2²⁰.
        """
        scale, unit = _unit(self.cost, 10**6), _unit(self.weights, 10**3)
        limited = scipy.sparse.csc_array((self.weights / unit).astype(float)[None])
        result = scipy.optimize.linprog(
            (self.cost / scale).astype(float),
            A_ub=scipy.sparse.vstack([-self.rows, limited]),
            b_ub=[*-self.bounds, (budget - self.graph.least_bytes) / unit],
            bounds=(0, 1),
        )
        return tuple(max(0, round(-price * 2**20)) for price in result.ineqlin.marginals)

    def proven(self, budget: int, multipliers: Sequence[int]) -> Fraction:
        """A cost below which no choice within `budget` gets, by weak duality, whatever the multipliers (none below 0).

        Instead of keeping to a row, one pays its price for each unit below its bound. What then costs least is at most
        what keeping to all rows costs, and each variable can be set by itself.
        """
        scale = Fraction(_unit(self.cost, 10**6))
        *prices, price = (scale * m / 2**20 for m in multipliers)
        price /= Fraction(_unit(self.weights, 10**3))
        left = [Fraction(c) + price * w for c, w in zip(self.cost, self.weights, strict=True)]
        total = -price * (budget - self.graph.least_bytes)
        rows = self.rows.tocoo()
        for i, j, value in zip(*rows.coords, rows.data, strict=True):
            left[j] -= prices[i] * int(value)
        total += sum(p * int(b) for p, b in zip(prices, self.bounds, strict=True))
        return self.graph.least_cost + total + sum(min(c, Fraction(0)) for c in left)

    def _without_idle(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Leaves out the names that spare nothing beside the others, the largest first."""
        alone = {name: sum(sum(p.arrays.values()) for p in self.graph.parts if p.name == name) for name in names}
        nbytes, cost = self.graph.evaluate(names)
        for name in sorted(names, key=alone.get, reverse=True):
            rest = tuple(n for n in names if n != name)
            less, again = self.graph.evaluate(rest)
            if less <= nbytes and again <= cost:  # without a name, what it was made from may have to be kept
                names, nbytes = rest, less
        return names


def _unit(numbers: np.ndarray, most: int) -> float:
    """What to divide by so that HiGHS meets no number above `most`: its tolerances are absolute, and near 1e-6.

    The greatest common divisor of whole numbers, an `int`, where that is enough.
    """
    least = max(numbers) / most or 1
    if all(isinstance(n, int) for n in numbers) and (divisor := math.gcd(*numbers)) >= least:
        return divisor
    return least

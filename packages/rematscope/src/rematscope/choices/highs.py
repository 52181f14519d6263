"""The best choice of a 0/1 program, by the solver HiGHS (Huangfu and Hall, 2018), which comes with SciPy.

HiGHS works in floating point, with absolute tolerances of about 1e-6. So it gets numbers in units in which they are not
large, and its results are evaluated again in exact arithmetic.
"""

import contextlib
import ctypes
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import scipy

from rematscope.choices.zero_one import Kind, ZeroOne

SOLVER = f"HiGHS, in SciPy {scipy.__version__}"

LARGEST_OBJECTIVE, LARGEST_LIMITED = 10**6, 10**3  # what HiGHS is given at most

_NODES = 10_000  # of branch and bound, after which HiGHS says how far it is: counted, and not timed, so that every
# machine finds the same
_SECONDS = 600  # after which it stops at all events

_MANY = 600  # variables that have to be whole: of fewer the best choice is found soon enough
_OPEN = 150, 600, 1200  # of more, those that are decided about near a choice that is known: few, and then more
_FAR = 0.1  # of what is found, that it is above the bound: better ones may be elsewhere

_PRINTED = b"HighsMipSolverData::"  # how the one line begins that HiGHS prints whatever it is told
_STDOUT_LOCK = threading.Lock()  # of those who hold standard output back


def minimise(
    program: ZeroOne,
    objective: Sequence[float],
    limited: Sequence[float],
    limit: float,
    holds: Callable[[list[str]], bool],
) -> tuple[list[str], float]:
    """The names to save so that the objective is least and the limit holds.

    Args:
      program: the rows.
      objective, limited: a number for each column: costs and bytes, or bytes and costs.
      limit: what Σ limited · column may be at most.
      holds: whether names keep to the limit, counted exactly.

    Returns:
      The names, and what HiGHS proves that Σ objective · column is not below: in floating point, and less than what
      these names lead to if it was stopped after 10,000 nodes or the numbers differ by more than a factor of a million.

    Raises:
      RuntimeError: if HiGHS finds nothing, which a program made from a graph and a limit that can be kept rules out.
    """
    scale, unit = unit_of(objective, LARGEST_OBJECTIVE), unit_of(limited, LARGEST_LIMITED)
    # At the limit itself, HiGHS's rounding errors have made it miss the best choice by far. Where sums are whole
    # numbers of units, half a unit more lets no other choice in; else a little more may, which is cut off below.
    room = limit // unit + 0.5 if isinstance(unit, int) else limit / unit + 1e-3
    constraints = [scipy.optimize.LinearConstraint(in_units(limited, unit), -np.inf, float(room))]
    if program.rows:
        constraints.append(scipy.optimize.LinearConstraint(matrix(program), bounds(program), np.inf))
    whole = np.array([column.kind is Kind.SAVED for column in program.columns], float)
    while True:
        result = milp(
            in_units(objective, scale),
            integrality=whole,
            bounds=scipy.optimize.Bounds(0, 1),
            constraints=constraints,
            options={"mip_rel_gap": 0, "node_limit": _NODES, "time_limit": _SECONDS},
        )
        if result.x is None:
            raise RuntimeError(f"HiGHS found no choice of names: {result.message}")
        on = np.flatnonzero(result.x > 0.5)
        names = [str(column.of) for i in on if (column := program.columns[i]).kind is Kind.SAVED]
        if holds(names):
            break
        constraints.append(_not_all_of(on, limited, limit))
    # HiGHS's bound has rounding errors too; whole numbers of units hide them.
    bound = result.mip_dual_bound
    bound = math.ceil(bound - 0.1) if isinstance(scale, int) else bound - 1
    return names, bound * scale


def milp(objective: np.ndarray, **program: Any) -> Any:
    """Run `scipy.optimize.milp` without the line that HiGHS prints.

    Args:
      objective: float64 of shape (columns,).
      **program: as there.
    """
    with _held_back():
        return scipy.optimize.milp(objective, **program)


def milp_neighborhood(
    objective: np.ndarray,
    *,
    integrality: np.ndarray,
    bounds: "scipy.optimize.Bounds",
    constraints: "Sequence[scipy.optimize.LinearConstraint]",
    options: dict[str, Any],
) -> Any:
    """The same of a program with many variables that have to be whole, near the best choice where they need not be.

    Nearly all of them are whole there anyway, and where they are, and a change would cost, they stay as they are: so
    HiGHS decides about the others alone (relaxation induced neighbourhoods; Danna, Rothberg and Le Pape, 2005). Its
    bound is then that of the choice whose variables need not be whole. Where nothing is found, or what is far above it,
    HiGHS decides about more of them: about all of a thousand takes seconds, also where there is nothing to find.
    """
    program = {"bounds": bounds, "constraints": constraints}
    whole = integrality > 0
    if np.count_nonzero(whole) > _MANY:
        rows = [side for each in constraints for side in _at_most(each)]
        relaxed = scipy.optimize.linprog(
            objective,
            A_ub=scipy.sparse.vstack([row for row, _ in rows], format="csc"),
            b_ub=np.concatenate([most for _, most in rows]),
            bounds=np.stack(np.broadcast_arrays(bounds.lb, bounds.ub, objective)[:2], axis=1),
            method="highs",
        )
        if relaxed.status == 2:  # nothing is within the limits
            relaxed.x = relaxed.mip_dual_bound = None
            return relaxed
        if relaxed.x is not None:
            nearest = np.round(relaxed.x)
            change = np.abs(relaxed.lower.marginals + relaxed.upper.marginals)
            change[np.abs(relaxed.x - nearest) > 1e-6] = -1
            change[~whole] = np.inf
            order = np.argsort(change, kind="stable")
            for count in _OPEN:
                fixed = whole.copy()
                fixed[order[:count]] = False
                near = scipy.optimize.Bounds(np.where(fixed, nearest, bounds.lb), np.where(fixed, nearest, bounds.ub))
                found = milp(objective, integrality=integrality, options=options, **(program | {"bounds": near}))
                if found.x is not None and found.fun - relaxed.fun <= _FAR * abs(found.fun):
                    break
            found.mip_dual_bound = relaxed.fun
            return found
    return milp(objective, integrality=integrality, options=options, **program)


def _at_most(constraint: "scipy.optimize.LinearConstraint") -> Iterator[tuple[Any, np.ndarray]]:
    """A constraint as rows that are at most so much."""
    for sign, limit in ((1, constraint.ub), (-1, constraint.lb)):
        most = np.broadcast_to(sign * np.asarray(limit, float), constraint.A.shape[:1])
        if np.isfinite(most).any():
            yield sign * constraint.A, most


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Hold back the process's standard output, and then write all of it except the line of HiGHS.

    HiGHS prints by C's `puts`, past `sys.stdout`, where only the descriptor can be changed. It is the process's: what
    another thread writes comes when this ends, and what a process writes that it starts meanwhile, never.
    """
    with _STDOUT_LOCK, contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(tempfile.TemporaryFile())
            libc, out = ctypes.CDLL(None), os.dup(1)
        except (OSError, TypeError):  # it is closed, there is nowhere to hold anything, or this is Windows
            yield
            return
        stack.callback(os.close, out)
        libc.fflush(None)
        os.dup2(held.fileno(), 1)
        try:
            yield
        finally:
            libc.fflush(None)
            os.dup2(out, 1)
            held.seek(0)
            if others := [line for line in held if not line.startswith(_PRINTED)]:
                with open(1, "wb", closefd=False) as stdout:
                    stdout.writelines(others)


def _not_all_of(on: np.ndarray, limited: Sequence[float], limit: float) -> Any:
    """Cut off a choice that exceeds the limit by less than the solver's tolerance: not all of its values may be saved.

    This is a cover inequality of the knapsack that the limit is (Balas, Facets of the knapsack polytope, 1975).
    """
    largest = sorted(on, key=limited.__getitem__, reverse=True)
    sums = accumulate(limited[i] for i in largest)
    cover = next((n for n, total in enumerate(sums, 1) if total > limit), len(largest))
    row = np.zeros(len(limited))
    row[largest[:cover]] = 1
    return scipy.optimize.LinearConstraint(row, -np.inf, cover - 1)


def matrix(program: ZeroOne) -> Any:
    """Return the coefficients of the rows, as SciPy's sparse array of shape (rows, columns)."""
    places = [(i, j, value) for i, row in enumerate(program.rows) for j, value in row.coefficients.items()]
    i, j, values = map(np.array, zip(*places, strict=True)) if places else ((), (), ())
    shape = len(program.rows), len(program.columns)
    return scipy.sparse.csc_array((values, (i, j)), shape=shape, dtype=float)


def bounds(program: ZeroOne) -> np.ndarray:
    """The bounds of the rows, float64 of shape (rows,)."""
    return np.array([row.bound for row in program.rows], float)


def in_units(numbers: Sequence[float], unit: float) -> np.ndarray:
    """Return numbers divided by a unit, float64 of shape (len(numbers),). Integers may have more than 53 bits."""
    return (np.array(numbers, object) / unit).astype(float)


def unit_of(numbers: Sequence[float], most: int) -> float:
    """Return a divisor after which no number is above `most`.

    The greatest common divisor of whole numbers, an `int`, where that is enough.
    """
    least = max(numbers) / most or 1
    whole = [n for n in numbers if isinstance(n, int)]
    if len(whole) == len(numbers) and (divisor := math.gcd(*whole)) >= least:
        return divisor
    return least

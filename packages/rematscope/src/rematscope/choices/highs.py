"""The best choice of a 0/1 program, by the solver HiGHS (Huangfu and Hall, 2018), which comes with SciPy.

HiGHS works in floating point, with absolute tolerances of about 1e-6. So numbers are scaled down for it, and its
results are evaluated again in exact arithmetic.
"""

import contextlib
import ctypes
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import scipy

from rematscope.choices.zero_one import Kind, ZeroOneProgram

SOLVER = f"HiGHS, in SciPy {scipy.__version__}"

LARGEST_OBJECTIVE, LARGEST_LIMITED = 10**6, 10**3  # the largest numbers that HiGHS gets

# The nodes of branch and bound after which HiGHS stops: a count, and not a time, gives every machine the same result.
_NODES = 10_000
_SECONDS = 600  # after which it stops in any case

_MANY = 600  # integer variables: a program with fewer is solved as a whole
_OPEN = 150, 600, 1200  # how many of more variables are left open near the relaxed solution, one after the other
_FAR = 0.1  # relative gap to the bound above which more variables are left open

_PRINTED = b"HighsMipSolverData::"  # the start of a line that HiGHS prints whatever its options are
_STDOUT_LOCK = threading.Lock()


def minimise(
    program: ZeroOneProgram,
    objective: Sequence[float],
    limited: Sequence[float],
    limit: float,
    holds: Callable[[list[str]], bool],
) -> tuple[list[str], float]:
    """Return the names to save so that the objective is least within the limit.

    Args:
      program: the rows.
      objective, limited: a number for each column: costs and bytes, or bytes and costs.
      limit: the limit of Σ limited · column.
      holds: whether names are within the limit, counted exactly.

    Returns:
      The names, and the lower bound of Σ objective · column that HiGHS proves in floating point. It is below the
      objective of these names if HiGHS stopped after 10,000 nodes, or if numbers differ by more than a factor of 10⁶.

    Raises:
      RuntimeError: if HiGHS finds nothing; a limit that some choice of the graph is within rules this out.
    """
    scale, unit = unit_of(objective, LARGEST_OBJECTIVE), unit_of(limited, LARGEST_LIMITED)
    # At the limit itself, HiGHS's rounding errors have made it miss the best choice by far. Where sums are whole
    # numbers of units, half a unit more lets no other choice in; else a little more may, which is cut off below.
    upper_bound = limit // unit + 0.5 if isinstance(unit, int) else limit / unit + 1e-3
    constraints = [scipy.optimize.LinearConstraint(in_units(limited, unit), -np.inf, float(upper_bound))]
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
    """Run `scipy.optimize.milp` without the line that HiGHS prints."""
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
    """Solve a program with many integer variables near the solution of its linear relaxation.

    Nearly all variables are integers there anyway. Those whose change would cost stay fixed, and HiGHS decides about
    the others (relaxation induced neighbourhoods; Danna, Rothberg and Le Pape, 2005). The bound is that of the
    relaxation. If no solution is found, or one far above the bound, HiGHS decides about more variables: to decide about
    a thousand takes seconds.
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
        if relaxed.status == 2:  # no solution is within the limits
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
    """Yield a constraint as pairs of rows and their upper limits."""
    for sign, limit in ((1, constraint.ub), (-1, constraint.lb)):
        most = np.broadcast_to(sign * np.asarray(limit, float), constraint.A.shape[:1])
        if np.isfinite(most).any():
            yield sign * constraint.A, most


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Hold back the process's standard output, and then write all of it except HiGHS's line.

    HiGHS prints with C's `puts`, past `sys.stdout`, so the file descriptor is replaced. Output of other threads is
    delayed until the end; output of a process that is started meanwhile is lost.
    """
    with _STDOUT_LOCK, contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(tempfile.TemporaryFile())
            libc, out = ctypes.CDLL(None), os.dup(1)
        except (OSError, TypeError):  # it is closed, no temporary file can be written, or this is Windows
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
    """Return the constraint that excludes a choice above the limit by less than the solver's tolerance.

    It is a cover inequality of the knapsack (Balas, Facets of the knapsack polytope, 1975).
    """
    largest = sorted(on, key=limited.__getitem__, reverse=True)
    sums = accumulate(limited[i] for i in largest)
    cover = next((n for n, total in enumerate(sums, 1) if total > limit), len(largest))
    row = np.zeros(len(limited))
    row[largest[:cover]] = 1
    return scipy.optimize.LinearConstraint(row, -np.inf, cover - 1)


def matrix(program: ZeroOneProgram) -> Any:
    """Return the coefficients of the rows, as SciPy's sparse array of shape (rows, columns)."""
    return sparse_rows([row.coefficients for row in program.rows], len(program.columns))


def sparse_rows(rows: Sequence[Mapping[int, float]], columns: int) -> Any:
    """Return rows, which map columns to coefficients, as SciPy's sparse array of shape (len(rows), columns)."""
    places = [(i, j, value) for i, row in enumerate(rows) for j, value in row.items()]
    i, j, values = map(np.array, zip(*places, strict=True)) if places else ((), (), ())
    return scipy.sparse.csc_array((values, (i, j)), shape=(len(rows), columns), dtype=float)


def bounds(program: ZeroOneProgram) -> np.ndarray:
    """Return the bounds of the rows, float64 of shape (rows,)."""
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

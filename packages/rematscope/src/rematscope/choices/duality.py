"""A lower bound of the cost of every choice, proven without a solver: weak duality, in exact arithmetic.

This is a Lagrangian relaxation (Geoffrion, Lagrangean relaxation for integer programming, 1974). The rows are not
enforced. Instead, each row has a multiplier. The objective increases by the multiplier for each unit by which the row
is violated, and decreases by it for each unit of slack. For any non-negative multipliers, the minimum of this objective
is a lower bound. Each variable can be minimized separately, so the bound is a sum of fractions.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy

from rematscope.choices.highs import LARGEST_LIMITED, LARGEST_OBJECTIVE, bounds, in_units, matrix, unit_of
from rematscope.choices.zero_one import ZeroOneProgram

_BEYOND = 10**12  # above every cost in HiGHS's units

_STEPS = 2**20  # multipliers are stored as integers, in units of 1 / _STEPS


def multipliers(program: ZeroOneProgram, budget: int) -> tuple[int, ...]:
    """Return the multipliers of the rows and of the budget in bytes that maximize `dual_bound`.

    They are the dual solution of the linear relaxation, in the units of HiGHS, times 2²⁰. If no choice is within the
    budget, they prove a bound above any cost.
    """
    scale, unit = unit_of(program.cost, LARGEST_OBJECTIVE), unit_of(program.nbytes, LARGEST_LIMITED)
    limited = scipy.sparse.csc_array(in_units(program.nbytes, unit)[None])
    rows = -matrix(program), -bounds(program)
    result = scipy.optimize.linprog(
        in_units(program.cost, scale),
        A_ub=scipy.sparse.vstack([rows[0], limited]),
        b_ub=np.append(rows[1], (budget - program.least_bytes) / unit),
        bounds=(0, 1),
    )
    if result.x is None:
        # Multipliers that prove the fewest bytes of any choice, times a factor that outweighs every cost.
        fewest = scipy.optimize.linprog(in_units(program.nbytes, unit), A_ub=rows[0], b_ub=rows[1], bounds=(0, 1))
        prices = [*(-_BEYOND * fewest.ineqlin.marginals), _BEYOND]
    else:
        prices = list(-result.ineqlin.marginals)
    return tuple(max(0, round(price * _STEPS)) for price in prices)


def dual_bound(program: ZeroOneProgram, budget: int, multipliers: Sequence[int]) -> Fraction:
    """Return a lower bound of the cost of every choice within `budget` bytes, for any multipliers.

    Args:
      multipliers: a non-negative integer for each row and for the budget, as `multipliers` returns.
    """
    scale = Fraction(unit_of(program.cost, LARGEST_OBJECTIVE))
    *prices, price = (scale * m / _STEPS for m in multipliers)
    price /= Fraction(unit_of(program.nbytes, LARGEST_LIMITED))
    left = [Fraction(c) + price * w for c, w in zip(program.cost, program.nbytes, strict=True)]
    total = Fraction(program.least_cost) - price * (budget - program.least_bytes)
    for paid, row in zip(prices, program.rows, strict=True):
        total += paid * row.bound
        for j, coefficient in row.coefficients.items():
            left[j] -= paid * coefficient
    return total + sum((min(c, Fraction(0)) for c in left), Fraction(0))

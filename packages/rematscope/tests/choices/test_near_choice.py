"""Programs too large to be solved whole: what is chosen near the best choice whose variables need not be whole."""

import numpy as np
import pytest
import scipy

from rematscope.choices import highs

OPTIONS = {"mip_rel_gap": 1e-2, "node_limit": 100, "time_limit": 60}


def knapsacks(rng, count=700, bins=8):
    """Return a program that saves items within several limits and minimizes the cost of the others (x + r ≥ 1)."""
    size = rng.integers(1, 1000, (bins, count)) * (rng.random((bins, count)) < 0.5)
    cost = rng.integers(1, 1000, count).astype(float)
    kept, again = np.eye(count), np.eye(count)
    rows = scipy.optimize.LinearConstraint(scipy.sparse.csc_array(np.hstack([kept, again])), 1, np.inf)
    limit = 0.4 * size.sum(1)
    fits = scipy.optimize.LinearConstraint(
        scipy.sparse.csc_array(np.hstack([size, np.zeros_like(size)])), -np.inf, limit
    )
    return {
        "objective": np.concatenate([np.zeros(count), cost]),
        "integrality": np.repeat([1.0, 0.0], count),
        "bounds": scipy.optimize.Bounds(0, np.ones(2 * count)),
        "constraints": [rows, fits],
        "options": OPTIONS,
    }


def asked_of(monkeypatch):
    """How many variables the solver was free to choose, each time."""
    free, solve = [], highs.milp

    def asked(objective, **program):
        low, high = np.broadcast_arrays(program["bounds"].lb, program["bounds"].ub, objective)[:2]
        free.append(np.count_nonzero((low < high) & (program["integrality"] > 0)))
        return solve(objective, **program)

    monkeypatch.setattr(highs, "milp", asked)
    return free


@pytest.mark.slow
def test_with_many_variables_few_are_branched_on_and_the_result_is_nearly_optimal(seed, monkeypatch):
    program = knapsacks(np.random.default_rng(seed))
    free = asked_of(monkeypatch)
    found, best = highs.milp_neighborhood(**program), scipy.optimize.milp(program["objective"], **_rows_only(program))
    assert free == [150]
    assert found.mip_dual_bound <= best.fun * (1 + 1e-6)  # nothing is better than that
    assert best.mip_dual_bound * (1 - 1e-6) <= found.fun <= 1.02 * best.fun
    assert (found.x[:700].round() == pytest.approx(found.x[:700])) and (found.x[:700] + found.x[700:] >= 1 - 1e-6).all()
    (_, fits) = program["constraints"]
    assert (fits.A @ found.x <= fits.ub * (1 + 1e-6)).all()


def test_where_nothing_near_is_good_enough_more_are_decided_about(monkeypatch):
    count = 700  # identical items, none of which fits
    size = np.full((1, count), 10.0)
    program = knapsacks(np.random.default_rng(0), count, 1)
    program["constraints"][1] = scipy.optimize.LinearConstraint(
        scipy.sparse.csc_array(np.hstack([size, 0 * size])), -np.inf, 9.0
    )
    program["objective"] = np.repeat([0.0, 1.0], count)
    monkeypatch.setattr(highs, "_FAR", 1e-4)
    free = asked_of(monkeypatch)
    found = highs.milp_neighborhood(**program)
    assert free == [150, 600, 700] and found.fun == pytest.approx(count)


@pytest.mark.slow
def test_the_first_that_is_found_is_near_enough_where_fewer_variables_leave_nothing_that_fits(monkeypatch):
    free, solve = [], highs.milp

    def nothing_at_first(objective, **program):
        found = solve(objective, **program)
        free.append(found.x is not None)
        found.x = found.x if len(free) > 1 else None
        return found

    monkeypatch.setattr(highs, "milp", nothing_at_first)
    found = highs.milp_neighborhood(**knapsacks(np.random.default_rng(1)))
    assert len(free) == 2 and found.mip_dual_bound <= found.fun <= 1.02 * found.mip_dual_bound


def test_an_infeasible_program_is_not_solved(monkeypatch):
    program = knapsacks(np.random.default_rng(0))
    program["constraints"][1].ub = np.full(8, -1.0)
    free = asked_of(monkeypatch)
    assert highs.milp_neighborhood(**program).x is None and not free


def _rows_only(program):
    return {key: value for key, value in program.items() if key != "objective"}

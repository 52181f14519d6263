"""A second solver, with an independent model, finds no better choice within a peak or within saved bytes."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from ortools.sat.python import cp_model

from rematscope import trace
from rematscope.choices.build import work
from rematscope.ir.program import reading
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.fusion import HEAVY, Fusion
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.settings import SETTINGS


def chain(ws, x):
    for w in ws:
        x = jnp.sin(x @ w)
    return jnp.sum(x)


def residual(ws, x):
    for up, down in zip(ws[::2], ws[1::2], strict=True):
        x = x + jnp.tanh(x @ up) @ down
    return jnp.sum(x * x)


def attending(ws, x):
    for a, b in zip(ws[::2], ws[1::2], strict=True):
        x = x + jax.nn.softmax(x @ a @ x.T) @ jnp.tanh(x @ b)
    return jnp.sum(x * x)


def shapes(*lengths):
    return [jax.ShapeDtypeStruct(pair, jnp.float32) for pair in itertools.pairwise(lengths)]


FUNCTIONS = {
    "chain": (chain, shapes(24, 8, 40, 16, 16, 32, 8, 24, 24), 64),
    "residual": (residual, shapes(16, 64, 16, 32, 16, 96, 16), 64),
    "attending": (attending, shapes(16, 16, 16, 16, 16), 24),
}


class Exact:
    """The rows of a function without loops, for OR-tools: a bin for each heavy step of the backward pass."""

    def __init__(self, linearized, candidates):
        self.linearized, self.candidates = linearized, candidates
        self.steps = linearized.backward.equations
        heavy = [e.primitive in HEAVY for e in self.steps]
        assert sum(heavy) <= SETTINGS.bins
        self.bin_of = [sum(heavy[:i]) for i in range(len(self.steps))]
        self.bins = 1 + self.bin_of[-1]
        self.maker = {v: e for e in linearized.primal.equations for v in e.outputs}
        self.outputs = linearized.backward.outputs
        self.asked = {}
        for step, bin_ in zip(self.steps, self.bin_of, strict=True):
            for v in reading(step):
                self.asked.setdefault(v, []).append(bin_)
        pending, self.nodes = [v for v in self.asked if v in self.maker], set()
        while pending:
            if (e := self.maker.get(pending.pop())) is not None and e not in self.nodes:
                self.nodes.add(e)
                pending += reading(e)
        self.order = [e for e in linearized.primal.equations if e in self.nodes]
        self.readers = {v: [e for e in self.order if v in reading(e)] for v in [*self.maker, *self.asked]}
        self.fusion = Fusion([self.order, self.steps], set(self.outputs))
        latest = {}  # the last bin in which an operation may run for the first time
        self.end = {}
        for e in reversed(self.order):
            found = [min(self.asked[v]) for v in e.outputs if v in self.asked]
            latest[e] = max(found + [latest[by] for v in e.outputs for by in self.readers[v]])
            for v in e.outputs:
                reading_it = [(by, o) for by in self.readers[v] for o in by.outputs]
                ends = [self.end[o] if o in self.fusion.unwritten else latest[by] for by, o in reading_it]
                self.end[v] = max(self.asked.get(v, []) + ends)
        self.given = self.cotangents()

    def cotangents(self):
        own = {v: i for i, e in enumerate(self.steps) for v in e.outputs}
        last = dict(own)
        for i, step in enumerate(self.steps):
            last |= {there: i for v in reading(step) for there in self.fusion.stands_for(v) if there in own}
        counted = [v for v in own if v not in self.fusion.unwritten and v not in self.outputs]
        live = [sum(v.nbytes for v in counted if own[v] <= i <= last[v]) for i in range(len(self.steps))]
        return [max(b for b, bin_ in zip(live, self.bin_of, strict=True) if bin_ == at) for at in range(self.bins)]

    def least(self, peak=None, saved=None):
        """Return the least recompute within limits on bytes; None if no choice is within them."""
        model, bins = cp_model.CpModel(), range(self.bins)
        limit, saved = saved, {v: model.new_bool_var("") for v in self.candidates}
        ran = {e: [model.new_bool_var("") for _ in bins] for e in self.order}

        def there(value, bin_, *unless):
            if value in self.maker:
                model.add_bool_or(ran[self.maker[value]][bin_], *unless, *([saved[value]] if value in saved else []))

        for value, asked in self.asked.items():
            there(value, min(asked))
        for e in self.order:
            for bin_ in bins:
                if bin_:
                    model.add_implication(ran[e][bin_ - 1], ran[e][bin_])
                for value in reading(e):
                    there(value, bin_, ran[e][bin_].negated())
        for bin_ in bins if peak is not None else ():
            terms = [v.nbytes * on for v, on in saved.items() if bin_ <= self.end[v]]
            terms += [
                sum(v.nbytes for v in e.outputs if v not in self.fusion.unwritten) * ran[e][bin_]
                for e in self.order
                if bin_ <= max(self.end[v] for v in e.outputs)
            ]
            model.add(sum(terms) <= peak - self.given[bin_])
        if limit is not None:
            model.add(sum(v.nbytes * on for v, on in saved.items()) <= limit)
        cost = cost_in(self.linearized, work)
        counted = [e for e in self.order if e not in self.linearized.deferred]
        model.minimize(sum(int(cost(e)) * ran[e][-1] for e in counted))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = 60
        status = solver.solve(model)
        assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE), solver.status_name()
        return int(solver.objective_value) if status == cp_model.OPTIMAL else None

    def again(self, kept):
        """Return the recompute of a choice of saved values."""
        cost = cost_in(self.linearized, work)
        run, pending = set(), [*self.asked]
        while pending:
            value = pending.pop()
            if value not in kept and (e := self.maker.get(value)) is not None and e not in run:
                run.add(e)
                pending += reading(e)
        return sum(int(cost(e)) for e in run - self.linearized.deferred)


@pytest.mark.parametrize("which", FUNCTIONS)
def test_another_solver_finds_no_better_choice_in_the_rows(which):
    f, ws, batch = FUNCTIONS[which]
    linearized = linearize(trace(f, ws, jax.ShapeDtypeStruct((batch, ws[0].shape[0]), jnp.float32)))
    rows = PeakProgram(linearized)
    exact = Exact(linearized, rows.saveable)
    most = sum(v.nbytes for v in rows.saveable)
    found = {"peak": set(), "saved": set()}
    for what, costs in found.items():
        for share in (0.3, 0.5, 0.6):
            limit = {what: int(share * most)}
            least, chosen = exact.least(**limit), rows.best(**limit, gap=0)
            assert (least is None) == (chosen is None)
            if chosen is not None:
                kept, _, bound = chosen
                assert exact.again(kept) == least and bound <= least * (1 + 1e-6)
                costs.add(least)
    assert all(len(costs) > 1 for costs in found.values())  # the limits decide

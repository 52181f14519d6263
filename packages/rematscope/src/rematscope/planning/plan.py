"""`plan(f, *args, budget=…)`: the names to save so that the backward pass computes least again, with a certificate."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax

from rematscope.choices.build import CostFunction, graph_of, recompute_graph, work
from rematscope.choices.chooser import Chooser
from rematscope.choices.duality import multipliers
from rematscope.choices.enumeration import are_few
from rematscope.choices.highs import SOLVER
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.choices.zero_one import zero_one
from rematscope.errors import PlanError
from rematscope.ir import jax_internals
from rematscope.ir.source import common_path
from rematscope.linting.finding import LintFinding
from rematscope.linting.lint import no_names
from rematscope.linting.whole_nets import whole_nets
from rematscope.planning.budget import budget_bytes, least_possible, part_of_range
from rematscope.planning.certificate import Certificate, not_provable, same_cost
from rematscope.render.parts import Paragraph, TextTable
from rematscope.render.units import amount_text, bytes_text
from rematscope.render.view import View
from rematscope.tracing.checkpoints import with_policy, without_checkpoints
from rematscope.tracing.trace import Passes, trace


def plan(
    f: Callable[..., Any], *args: Any, budget: int | str | float, cost: CostFunction = work, **kwargs: Any
) -> "Plan":
    """Chooses the names to save so that the backward pass computes as little as possible again within `budget`.

    Every choice keeps some bytes and costs some recomputation, and what a name spares depends on which others are
    saved. The choice is the best of all, by a 0/1 program on the graph of one trace; then the planned function is
    traced, and must keep and compute again exactly what the graph said.

    Args:
      f: a function that is differentiable in reverse mode and gives values names with `checkpoint_name`. It is not run.
        If it has checkpoints of its own, they stay where they are, and the names are chosen for all of them together;
        else one checkpoint around all of `f` is planned.
      *args, **kwargs: its arguments, as for `trace`.
      budget: how much may be kept of what the forward pass computes: bytes as a whole number, a text like `"12 MiB"`
        or `"1.5 GB"`, or a fraction as a float, from 0.0 (as little as possible) to 1.0 (every name). Arguments are not
        counted: they are kept by whoever called.
      cost: what computing an equation again takes: a function of an `Equation`. FLOPs, and one for each element that a
        transcendental function is applied to, by default.

    Returns:
      The plan; `jax.checkpoint(f, policy=plan.policy)` follows it.

    Raises:
      PlanError: if the budget cannot be read or kept, or `f` names nothing that could be saved.
      TraceError: as `trace` does.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import plan
      >>> def f(x, w, u):
      ...     return jnp.sin(checkpoint_name(x @ w, "h") @ u)
      >>> args = jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64))
      >>> best = plan(f, *args, budget="8 KiB")
      >>> best.names, best.saved_bytes, best.gap
      (('h',), 8192, 0)
      >>> best.certificate.verify(f, *args)  # raises PlanError where it does not hold
      262144
      >>> planned = jax.checkpoint(f, policy=best.policy)
    """
    __tracebackhide__ = True
    graph = recompute_graph(f, *args, cost=cost, **kwargs)
    if isinstance(budget, float):
        return best_plan(f, graph, part_of_range(budget, graph), args, kwargs, cost)
    return best_plan(f, graph, budget_bytes(budget), args, kwargs, cost)


def best_plan(
    f: Callable[..., Any],
    graph: RecomputeGraph,
    limit: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    cost: CostFunction = work,
) -> "Plan":
    """The plan of `f`, whose recompute graph is known, within `limit` bytes; see `plan`."""
    __tracebackhide__ = True
    if not graph.names:
        raise PlanError(no_names(f, *args, **kwargs))
    if limit < (least := least_possible(graph)):
        raise PlanError(
            f"a budget of {bytes_text(limit)} is too small: {graph.passes.function} keeps at least {least:,} bytes "
            f"({bytes_text(least)}) of computed values whatever is chosen: what goes into its checkpoints, and what "
            "the backward pass needs of the rest. Give that much, or put a checkpoint around more of it."
        )
    names, bound = Chooser(graph).cheapest(limit)
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    planned = with_policy(f, policy)
    passes = trace(planned, *args, **kwargs)
    made = Plan(graph, names, policy, planned, passes, limit, min(bound, graph.evaluate(names)[1]))
    made.check(cost)
    made.findings = tuple(whole_nets(passes, graph.passes, lambda: trace(without_checkpoints(f), *args, **kwargs)))
    return made


class Plan(View):
    """The best choice of names under a budget. Displays itself.

    Attributes:
      names: the names to save, in the order of the program.
      policy: what to give to `jax.checkpoint`, as `policy=`.
      planned: `f` with that policy in its checkpoints, or in one around it.
      passes: the trace of `planned`.
      budget: bytes that may be kept.
      saved_bytes: bytes of computed residuals that are kept.
      cost: what the plan computes again, in the unit of `plan`'s `cost`: FLOPs and transcendentals by default.
      bound: what every choice within the budget costs at least, in that unit; the solver proved it. What has no known
        cost is not in it.
      graph: what the backward pass computes again for other choices; `graph.evaluate(names)` gives bytes and cost.
      findings: what `lint` says of a checkpoint around several layers, whose peak no choice of names lowers much.
    """

    def __init__(
        self,
        graph: RecomputeGraph,
        names: tuple[str, ...],
        policy: Callable[..., Any],
        planned: Callable[..., Any],
        passes: Passes,
        budget: int,
        bound: float,
    ):
        self.names = names
        self.policy = policy
        self.planned = planned
        self.passes = passes
        self.graph = graph
        self.budget = budget
        self.saved_bytes, self.cost = graph.evaluate(names)
        self.bound = bound
        self.findings: tuple[LintFinding, ...] = ()

    @property
    def recompute_flops(self) -> int:
        """FLOPs that the planned backward pass spends on computing again what the forward pass had."""
        return self.passes.recompute_cost.flops

    @property
    def gap(self) -> float:
        """How far `cost` may be above the least possible: 0 when the plan is proven the best.

        Infinite where something that may be computed again has no known cost (`graph.uncounted`).
        """
        return math.inf if self.graph.uncounted else self.cost - self.bound

    @property
    def slack(self) -> int:
        """Bytes of the budget that are not used."""
        return self.budget - self.saved_bytes

    @cached_property
    def certificate(self) -> Certificate:
        """What makes the claim, in plain data; verify it with `certificate.verify(f, *args)`.

        Raises:
          PlanError: if the backward pass may compute something again whose cost is not known.
        """
        if self.graph.uncounted:
            raise PlanError(not_provable(self.graph))
        many = not are_few(self.graph)
        return Certificate(
            function=self.graph.passes.function,
            program=self.graph.digest,
            budget=self.budget,
            names=self.names,
            saved_bytes=self.saved_bytes,
            objective=self.cost,
            bound=self.bound,
            solver=SOLVER if many else "a look at every choice",
            multipliers=multipliers(zero_one(self.graph), self.budget) if many else (),
        )

    def check(self, cost: CostFunction = work) -> None:
        """Asks JAX: the trace of the planned function must keep and compute again what the plan says.

        Args:
          cost: as given to `plan`.

        Raises:
          PlanError: if it does not.
        """
        kept = self.passes.device_bytes_by_kind().get("computed", 0)
        again = graph_of(self.passes, cost).all_recomputed
        if kept == self.saved_bytes and same_cost(again, self.cost):
            return
        if jax_internals.remat3():
            why = "Under JAX_REMAT3=1 a name may do nothing: plan without it."
        else:
            why = "Please report this function, for rematscope misreads one of its checkpoints."
        raise PlanError(
            f"the plan for {self.passes.function} keeps {self.saved_bytes:,} bytes at a cost of {self.cost:,}, but "
            f"JAX keeps {kept:,} at {again:,} with these names. {why}"
        )

    def parts(self) -> Iterable[View]:
        table = TextTable(self._cells(), self._footer(), numeric=("bytes", "spares"))
        return [Paragraph(self._headline()), table, *(Paragraph(finding.text) for finding in self.findings)]

    def _headline(self) -> str:
        chosen, all_of = len(self.names), len(self.graph.names)
        return (
            f"{self.graph.passes.function}: save {chosen} of {all_of} names, "
            f"{bytes_text(self.saved_bytes)} of {bytes_text(self.budget)}{self.passes.where}; "
            f"{bytes_text(self.slack)} left"
        )

    def _footer(self) -> str:
        _, worst = self.graph.evaluate(())
        again = f"computes {amount_text(self.cost)} again, where saving nothing computes {amount_text(worst)} again"
        again += self.graph.weighing
        if self.graph.uncounted:
            return f"{again}; {self.graph.uncounted_text}, so that another choice may compute less"
        if self.gap <= 0:
            return f"{again}; no choice within the budget computes less"
        return f"{again}; no choice within the budget computes less than {amount_text(self.bound)}"

    def _cells(self) -> list[list[str]]:
        """A row for each name, what it takes and what it spares where the other choices stay."""
        rows = [["save", "name", "bytes", "spares", "line"]]
        for name in self.graph.names:
            here = name in self.names
            others = [n for n in self.names if n != name]
            without, with_it = self.graph.evaluate(others), self.graph.evaluate([*others, name])
            named = [n.equation for n in self.graph.nodes if n.name == name and n.equation]
            line = "\n".join(filter(None, [common_path(e.module for e in named), str(named[0].source or "")]))
            spared = " + ".join([amount_text(without[1] - with_it[1]), *self._unknown_spared(name, others)])
            rows.append(["✓" if here else "", name, bytes_text(with_it[0] - without[0]), spared, line])
        return rows

    def _unknown_spared(self, name: str, others: list[str]) -> list[str]:
        """What is not computed again if a name is saved beside others, and has no known cost."""
        if not self.graph.uncounted:
            return []
        without, with_it = (self.graph.walk(frozenset(names)) for names in (others, [*others, name]))
        return sorted(frozenset[str]().union(*(node.uncounted for node in without - with_it)))

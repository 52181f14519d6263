"""The claim that a choice is the best within a limit, and its verification without a solver."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from rematscope.choices.build import CostedCall, CostFunction, work
from rematscope.choices.candidates import candidates, digest_of
from rematscope.choices.chooser import Chooser
from rematscope.choices.duality import dual_bound
from rematscope.choices.enumeration import are_few
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.choices.zero_one import zero_one_program
from rematscope.errors import PlanError
from rematscope.planning.budget import least_possible
from rematscope.seconds.devices import Device, resolve_cost
from rematscope.tracing.checkpoints import called_once
from rematscope.tracing.static_values import call_with_static


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The claim that a plan is the best within a limit on saved bytes, with the data to verify it.

    Attributes:
      function: the name of the function.
      program: the SHA-256 of the recompute graphs that were compared: operations, shapes, costs, bytes and names.
      budget: the limit on saved bytes.
      saved_bytes: the bytes that the plan saves.
      names: the names that the plan saves.
      objective: the recompute cost of the plan, in the unit of the argument `cost` of `plan`.
      bound: a lower bound on the recompute cost of every choice within the limit, in the same unit.
      solver: the name of the solver that proved the bound.
      multipliers: with more than 16 names, one dual variable per row of each 0/1 program. By weak duality, these prove
        the lower bound of the linear relaxation. Empty with at most 16 names.
      with_policy: the policy that the names are combined with; "" for names alone.
      compared: the policies that were compared, each combined with all choices of names if possible; "" for names
        alone.
    """

    function: str
    program: str
    budget: int
    names: tuple[str, ...]
    saved_bytes: int
    objective: float
    bound: float
    solver: str
    multipliers: tuple[int, ...] = ()
    with_policy: str = ""
    compared: tuple[str, ...] = ("",)

    def verify(
        self,
        f: Callable[..., Any],
        *args: Any,
        cost: CostFunction | str = work,
        device: Device | str | None = None,
        **kwargs: Any,
    ) -> float | Fraction:
        """Check the claim without a solver.

        `verify` traces `f` again and recounts the bytes and the recompute cost of the plan. With up to 16 names, it
        enumerates all subsets of the names. With more, it proves a lower bound from `multipliers` in exact arithmetic.
        The solver's bound is tighter, but `verify` cannot prove it.

        Args:
          f, *args, **kwargs, cost, device: the same values as for `plan`.

        Raises:
          PlanError: if the plan is for a different function, if the saved bytes, the recompute cost or the bound differ
            from the claim, or if a recomputed operation has no known cost.
          TargetError, TraceError: as for `plan`.
        """
        f, args, kwargs = call_with_static(f, args, kwargs)
        found = candidates(CostedCall(called_once(f, args, kwargs), args, kwargs, resolve_cost(cost, device)))
        alone = found[0].graph
        if alone.uncounted:
            raise PlanError(not_provable(alone))
        graphs = {candidate.label: candidate.graph for candidate in found}
        here = alone.trace.function, digest_of(found), tuple(graphs)
        if here != (self.function, self.program, tuple(self.compared)) or self.with_policy not in graphs:
            raise PlanError(
                f"this certificate is for a different program than {alone.trace.function} with these arguments and "
                "this cost. Verify it with the arguments of plan and the same jax_remat3, or plan again."
            )
        graph = graphs[self.with_policy]
        kept, again = graph.evaluate(self.names)
        claimed = kept == self.saved_bytes <= self.budget and same_cost(again, self.objective)
        if not claimed or tuple(self.names) != tuple(n for n in graph.names if n in self.names):
            raise PlanError(
                f"the certificate was changed: these names save {kept:,} bytes at a cost of {again:,}, but the "
                f"certificate says {self.saved_bytes:,} of {self.budget:,} bytes at a cost of {self.objective:,}. "
                "Plan again."
            )
        least = self._proven_bound(list(graphs.values()))
        if least is None:
            holds, least = False, 0
        elif all(map(are_few, graphs.values())):
            holds = same_cost(float(least), self.bound) and same_cost(float(least), self.objective)
        else:
            holds = least <= self.bound <= self.objective
        if not holds:
            raise PlanError(
                f"the certificate was changed: it claims that no choice costs less than {self.bound:,}, but only "
                f"{float(least):,.0f} can be proven, and the choice costs {self.objective:,}."
            )
        return least

    def _proven_bound(self, graphs: Sequence[RecomputeGraph]) -> float | Fraction | None:
        """Return a lower bound on the cost of every choice within the budget; None if the multipliers are not valid."""
        left = self.multipliers
        bounds: list[float | Fraction] = []
        for graph in graphs:
            if are_few(graph):
                if least_possible(graph) <= self.budget:
                    bounds.append(Chooser(graph).cheapest(self.budget)[1])
                continue
            program = zero_one_program(graph)
            own, left = left[: len(program.rows) + 1], left[len(program.rows) + 1 :]
            if len(own) <= len(program.rows) or min(own) < 0:
                return None
            bounds.append(dual_bound(program, self.budget, own))
        return None if left else min(bounds)


def not_provable(graph: RecomputeGraph) -> str:
    """Return the reason why no choice can be proven optimal if an operation's cost is unknown, and the next step."""
    known = (
        "A while_loop counts as one iteration: use jax.lax.scan if its length is known."
        if graph.uncounted == {"while"}
        else "Give its cost with cost=, a function of an Equation; a while_loop still counts as one iteration."
    )
    return (
        f"no choice for {graph.trace.function} can be proven to be the best: {graph.uncounted_text}, and its "
        f"backward pass may recompute that. {known}"
    )


def same_cost(a: float, b: float) -> bool:
    """Return whether two costs are equal; floats may differ by rounding, since the order of their sum may differ."""
    return a == b if isinstance(a, int) and isinstance(b, int) else math.isclose(a, b, rel_tol=1e-9)

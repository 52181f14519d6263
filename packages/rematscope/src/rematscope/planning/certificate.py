"""A claim that a choice is the best within a budget, and how it is verified without the solver."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from rematscope.choices.build import CostFunction, work
from rematscope.choices.candidates import candidates, digest_of
from rematscope.choices.chooser import Chooser
from rematscope.choices.duality import proven
from rematscope.choices.enumeration import are_few
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.choices.zero_one import zero_one
from rematscope.errors import PlanError
from rematscope.planning.budget import least_possible
from rematscope.seconds.devices import Device, cost_meant
from rematscope.tracing.checkpoints import called_once


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A claim that a choice is the best within a budget, and what is needed to verify it.

    Attributes:
      function: the name of the function.
      program: SHA-256 of the recompute graphs of all that was compared: operations, shapes, costs, bytes, names.
      budget, saved_bytes: bytes that may be kept, and that are kept.
      names: the choice.
      objective: what it computes again, in the unit of `plan`'s `cost`.
      bound: what every choice within the budget costs at least.
      solver: what proved the bound.
      multipliers: for more than 16 names, a price for each row of the 0/1 program, one program after the other. Any
        prices prove a bound, by weak duality; these prove that of the program whose names may be saved in part. Else
        empty.
      with_policy: the policy that saves more beside the names, "" for none.
      compared: beside which policies all choices of names were compared; "" for names alone.
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
        """Checks the claim without the solver.

        The program is traced again, and bytes and cost of the choice are counted anew. Up to 16 names, every subset is
        then looked at. For more, `multipliers` prove a bound in exact arithmetic; the solver's own is closer, and rests
        on its search alone.

        Args:
          f, *args, **kwargs, cost, device: as given to `plan`.

        Returns:
          The bound that was proven, in the unit of `cost`: `objective` itself up to 16 names.

        Raises:
          PlanError: if the function is another one, the claim does not hold, or the function computes something again
            whose cost is not known.
          TargetError, TraceError: as `plan` does.
        """
        found = candidates(called_once(f, args, kwargs), *args, cost=cost_meant(cost, device), **kwargs)
        alone = found[0].graph
        if alone.uncounted:
            raise PlanError(not_provable(alone))
        graphs = {candidate.label: candidate.graph for candidate in found}
        same = (alone.trace.function, digest_of(found), tuple(graphs)) == (
            self.function,
            self.program,
            tuple(self.compared),
        )
        if not same or self.with_policy not in graphs:
            raise PlanError(
                f"this certificate is about another program than {alone.trace.function} with these arguments and this "
                "cost. Verify it with what plan was given, or plan again."
            )
        graph = graphs[self.with_policy]
        kept, again = graph.evaluate(self.names)
        claimed = kept == self.saved_bytes <= self.budget and same_cost(again, self.objective)
        if not claimed or tuple(self.names) != tuple(n for n in graph.names if n in self.names):
            raise PlanError(
                f"the names save {kept:,} bytes at a cost of {again:,}, but the certificate says "
                f"{self.saved_bytes:,} of {self.budget:,} at {self.objective:,}: it was changed. Plan again."
            )
        least = self._proven(list(graphs.values()))
        if least is None:
            holds, least = False, 0
        elif all(map(are_few, graphs.values())):
            holds = same_cost(float(least), self.bound) and same_cost(float(least), self.objective)
        else:
            holds = least <= self.bound <= self.objective
        if not holds:
            raise PlanError(
                f"that no choice within the budget costs less than {self.bound:,} is not what can be proven here, "
                f"which is {float(least):,.0f}; and the choice costs {self.objective:,}. The certificate was changed."
            )
        return least

    def _proven(self, graphs: Sequence[RecomputeGraph]) -> float | Fraction | None:
        """What every choice within the budget costs at least; None if there are not as many multipliers as rows."""
        left = self.multipliers
        bounds: list[float | Fraction] = []
        for graph in graphs:
            if are_few(graph):
                if least_possible(graph) <= self.budget:
                    bounds.append(Chooser(graph).cheapest(self.budget)[1])
                continue
            program = zero_one(graph)
            own, left = left[: len(program.rows) + 1], left[len(program.rows) + 1 :]
            if len(own) <= len(program.rows) or min(own) < 0:
                return None
            bounds.append(proven(program, self.budget, own))
        return None if left else min(bounds)


def not_provable(graph: RecomputeGraph) -> str:
    """Why no choice can be proven the best where the cost of something is not known, and what to do."""
    known = (
        "A while_loop counts as one iteration: use jax.lax.scan where its length is known."
        if graph.uncounted == {"while"}
        else "Say it with cost=, a function of an Equation; a while_loop counts as one iteration all the same."
    )
    return (
        f"no choice for {graph.trace.function} can be proven the best: {graph.uncounted_text}, and its backward pass "
        f"may compute that again. {known}"
    )


def same_cost(a: float, b: float) -> bool:
    """Whether two costs are equal; sums of floats as far as their order lets them."""
    return a == b if isinstance(a, int) and isinstance(b, int) else math.isclose(a, b, rel_tol=1e-9)

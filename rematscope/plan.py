"""`plan(f, *args, budget=…)`: the names to save so that the backward pass computes least again, with a certificate."""

import dataclasses
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property

import jax
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rematscope import _jax
from rematscope.checkpoints import nothing, with_policy, without_checkpoints
from rematscope.display import TextTable, escaped, plain_text
from rematscope.errors import PlanError
from rematscope.lint import no_names, whole_nets
from rematscope.names import Finding
from rematscope.program import Equation
from rematscope.recompute import RecomputeGraph, work
from rematscope.solve import FEW, SOLVER, ZeroOne
from rematscope.trace import Passes, trace
from rematscope.units import amount_text, bytes_text


def recompute_graph(f: Callable, *args, cost: Callable[[Equation], float] = work, **kwargs) -> RecomputeGraph:
    """The graph of what `f`'s backward pass computes again for any choice of names.

    Args:
      f: a function that is differentiable in reverse mode. It is not run. Its checkpoints are what names are chosen
        for, whatever policies they have; if it has none, one checkpoint around all of it is.
      *args, **kwargs: its arguments, as for `trace`.
      cost: what computing an equation again takes; FLOPs and transcendentals by default.

    Raises:
      TraceError: as `trace` does.
      PlanError: if `cost` gives something that is no cost.
    """
    with _jax.default_remat():  # the next one forgets the names that it does not save
        try:
            passes = trace(with_policy(f, nothing), *args, **kwargs)
        except NotImplementedError as error:
            if "Effects not supported" not in str(error):
                raise
            raise PlanError(
                f"{getattr(f, '__name__', 'the function')} calls back to Python in a way that a checkpoint may not "
                "repeat, such as io_callback. Put checkpoints around the parts that do not."
            ) from None
    return RecomputeGraph(passes, cost)


def plan(f: Callable, *args, budget: int | str | float, cost: Callable[[Equation], float] = work, **kwargs) -> "Plan":
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
    """
    __tracebackhide__ = True
    graph = recompute_graph(f, *args, cost=cost, **kwargs)
    if isinstance(budget, float):
        return best(f, graph, _part(budget, graph), args, kwargs, cost)
    return best(f, graph, budget_bytes(budget), args, kwargs, cost)


def best(f: Callable, graph: RecomputeGraph, limit: int, args, kwargs, cost: Callable = work) -> "Plan":
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
    names, bound = ZeroOne(graph).cheapest(limit)
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    planned = with_policy(f, policy)
    passes = trace(planned, *args, **kwargs)
    made = Plan(f, graph, names, policy, planned, passes, limit, min(bound, graph.evaluate(names)[1]))
    made.check(cost)
    made.findings = tuple(whole_nets(passes, graph.passes, lambda: trace(without_checkpoints(f), *args, **kwargs)))
    return made


def least_possible(graph: RecomputeGraph) -> int:
    """Bytes of computed residuals that the choice which keeps fewest keeps."""
    nbytes, cost = graph.evaluate(())  # nothing costs more, and mostly nothing keeps less
    return nbytes if nbytes == graph.least_bytes else graph.evaluate(ZeroOne(graph).smallest(cost))[0]


class Plan:
    """The best choice of names under a budget. Displays itself.

    Attributes:
      names: the names to save, in the order of the program.
      policy: what to give to `jax.checkpoint`, as `policy=`.
      planned: `f` with that policy in its checkpoints, or in one around it.
      passes: the trace of `planned`.
      budget: bytes that may be kept.
      saved_bytes: bytes of computed residuals that are kept.
      cost: what the plan computes again, in the unit of `plan`'s `cost`.
      bound: what every choice within the budget costs at least; the solver proved it.
      graph: what the backward pass computes again for other choices; `graph.evaluate(names)` gives bytes and cost.
      findings: what `lint` says of a checkpoint around several layers, whose peak no choice of names lowers much.
    """

    def __init__(self, function, graph, names, policy, planned, passes: Passes, budget: int, bound: float):
        self.names: tuple[str, ...] = names
        self.policy = policy
        self.planned = planned
        self.passes = passes
        self.graph: RecomputeGraph = graph
        self.budget = budget
        self.saved_bytes, self.cost = graph.evaluate(names)
        self.bound = bound
        self.findings: tuple[Finding, ...] = ()

    @property
    def recompute_flops(self) -> int:
        """FLOPs that the planned backward pass spends on computing again what the forward pass had."""
        return self.passes.recompute_cost.flops

    @property
    def gap(self) -> float:
        """How far `cost` may be above the least possible: 0 when the plan is proven the best."""
        return self.cost - self.bound

    @property
    def slack(self) -> int:
        """Bytes of the budget that are not used."""
        return self.budget - self.saved_bytes

    @cached_property
    def certificate(self) -> "Certificate":
        """What makes the claim, in plain data; verify it with `certificate.verify(f, *args)`."""
        many = len(self.graph.names) > FEW
        return Certificate(
            function=self.graph.passes.function,
            program=self.graph.digest,
            budget=self.budget,
            names=self.names,
            saved_bytes=self.saved_bytes,
            objective=self.cost,
            bound=self.bound,
            solver=SOLVER if many else "a look at every choice",
            multipliers=ZeroOne(self.graph).multipliers(self.budget) if many else (),
        )

    def check(self, cost: Callable[[Equation], float] = work) -> None:
        """Raises PlanError unless the trace of the planned function keeps and computes again what the plan says."""
        kept = self.passes.bytes_by_kind().get("computed", 0)
        again = RecomputeGraph(self.passes, cost).all_recomputed
        if kept == self.saved_bytes and _same(again, self.cost):
            return
        if jax.config.jax_remat3:
            why = "Under JAX_REMAT3=1 a name may do nothing: plan without it."
        else:
            why = "Please report this function, for rematscope misreads one of its checkpoints."
        raise PlanError(
            f"the plan for {self.passes.function} keeps {self.saved_bytes:,} bytes at a cost of {self.cost:,}, but "
            f"JAX keeps {kept:,} at {again:,} with these names. {why}"
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._headline())
        yield self._table()
        yield from (Text(finding.text) for finding in self.findings)

    def __repr__(self):
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        page = self._table()._repr_mimebundle_()["text/html"]
        notes = "".join(f"<p>{escaped(finding.text)}</p>" for finding in self.findings)
        return {"text/plain": plain_text(self), "text/html": f"<p>{self._headline()}</p>{page}{notes}"}

    def _table(self) -> TextTable:
        return TextTable(self._cells(), self._footer(), numeric=("bytes", "spares"))

    def _headline(self) -> str:
        chosen, all_of = len(self.names), len(self.graph.names)
        return (
            f"{self.graph.passes.function}: save {chosen} of {all_of} names, "
            f"{bytes_text(self.saved_bytes)} of {bytes_text(self.budget)}; {bytes_text(self.slack)} left"
        )

    def _footer(self) -> str:
        _, worst = self.graph.evaluate(())
        again = f"computes {amount_text(self.cost)} again, where saving nothing computes {amount_text(worst)} again"
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
            source = next(str(n.equation.source or "") for n in self.graph.nodes if n.name == name)
            spared = amount_text(without[1] - with_it[1])
            rows.append(["✓" if here else "", name, bytes_text(with_it[0] - without[0]), spared, source])
        return rows


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A claim that a choice of names is the best within a budget, and what is needed to verify it.

    Attributes:
      function: the name of the function.
      program: SHA-256 of its recompute graph: operations, shapes, costs, bytes, names.
      budget, saved_bytes: bytes that may be kept, and that are kept.
      names: the choice.
      objective: what it computes again.
      bound: what every choice within the budget costs at least.
      solver: what proved the bound.
      multipliers: for more than 16 names, a price for each row of the 0/1 program. Any prices prove a bound, by weak
        duality; these prove that of the program whose names may be saved in part. Else empty.
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

    def verify(self, f: Callable, *args, cost: Callable[[Equation], float] = work, **kwargs) -> float:
        """Checks the claim without the solver.

        The program is traced again, and bytes and cost of the choice are counted anew. Up to 16 names, every subset is
        then looked at. For more, `multipliers` prove a bound in exact arithmetic; the solver's own is closer, and rests
        on its search alone.

        Args:
          f, *args, **kwargs, cost: as given to `plan`.

        Returns:
          The bound that was proven: `objective` itself up to 16 names.

        Raises:
          PlanError: if the function is another one, or the claim does not hold.
        """
        graph = recompute_graph(f, *args, cost=cost, **kwargs)
        if (graph.passes.function, graph.digest) != (self.function, self.program):
            raise PlanError(
                f"this certificate is about another program than {graph.passes.function} with these arguments and this "
                "cost. Verify it with what plan was given, or plan again."
            )
        kept, again = graph.evaluate(self.names)
        claimed = kept == self.saved_bytes <= self.budget and _same(again, self.objective)
        if not claimed or tuple(self.names) != tuple(n for n in graph.names if n in self.names):
            raise PlanError(
                f"the names keep {kept:,} bytes at a cost of {again:,}, and the certificate says "
                f"{self.saved_bytes:,} of {self.budget:,} at {self.objective:,}: it was changed. Plan again."
            )
        program = ZeroOne(graph)
        if len(graph.names) <= FEW:
            least = program.cheapest(self.budget)[1]
            holds = not self.multipliers and _same(least, self.bound) and _same(least, self.objective)
        elif len(self.multipliers) == len(program.bounds) + 1 and min(self.multipliers) >= 0:
            least = program.proven(self.budget, self.multipliers)
            holds = least <= self.bound <= self.objective
        else:
            least, holds = 0, False
        if not holds:
            raise PlanError(
                f"that no choice within the budget costs less than {self.bound:,} is not what can be proven here, "
                f"which is {float(least):,.0f}; and the choice costs {self.objective:,}. The certificate was changed."
            )
        return least


def _same(a: float, b: float) -> bool:
    """Whether two costs are equal; sums of floats as far as their order lets them."""
    return a == b if isinstance(a, int) and isinstance(b, int) else math.isclose(a, b, rel_tol=1e-9)


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def _part(share: float, graph: RecomputeGraph) -> int:
    """Bytes that lie `share` of the way from the least possible to what every name takes."""
    if not 0 <= share <= 1:
        raise PlanError(
            f"a budget of {share!r} is no fraction. Give a float from 0.0 (as little as possible) to 1.0 (every "
            "name), bytes as a whole number, or a text like '12 MiB'."
        )
    least, (most, _) = least_possible(graph), graph.evaluate(graph.names)
    return least + int(share * (most - least))


def budget_bytes(budget: int | str) -> int:
    """Bytes that a number or a text like `"12 MiB"` or `"1.5 GB"` means.

    Raises:
      PlanError: if it means none.
    """
    if isinstance(budget, str):
        parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?(?:ytes)?\s*", budget.lower().replace(",", ""))
        if parts is None or parts[2] not in _UNITS:
            raise PlanError(f"a budget of {budget!r} cannot be read. Write it like '12 MiB', '1.5 GB' or '4096 B'.")
        return int(Fraction(parts[1]) * _UNITS[parts[2]])
    try:
        size = -1 if isinstance(budget, bool) else operator.index(budget)
    except TypeError:
        size = -1
    if size < 0:
        raise PlanError(f"a budget of {budget!r} is no number of bytes. Give 12_000_000, '12 MB', or 0.5 for half.")
    return size

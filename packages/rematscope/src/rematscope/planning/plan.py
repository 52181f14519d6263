"""`plan(f, *args, saved=…)`: the choice of names and policies with the least recompute, with a certificate."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import jax

from rematscope import jax_compat
from rematscope.choices.build import SAVED_DIFFERENTLY, CostedCall, CostFunction, is_predicted, recompute_cost_of, work
from rematscope.choices.candidates import (
    AS_IT_IS,
    EVERYTHING,
    PolicyCandidate,
    as_written,
    candidates,
    candidates_with,
    digest_of,
    is_left_out,
)
from rematscope.choices.chooser import Chooser
from rematscope.choices.duality import multipliers
from rematscope.choices.enumeration import are_few
from rematscope.choices.highs import SOLVER
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.choices.zero_one import zero_one_program
from rematscope.errors import PlanError
from rematscope.ir.attention_costs import FORWARD_KERNELS, SAVED_BY_A_RULE
from rematscope.ir.gc_pause import gc_paused
from rematscope.ir.roles import RECOMPUTED
from rematscope.ir.source import common_path
from rematscope.linting.finding import LintFinding
from rematscope.linting.lint import no_names
from rematscope.linting.whole_nets import whole_nets
from rematscope.planning.budget import budget_bytes, budget_code, least_of, least_possible, part_of_range
from rematscope.planning.certificate import Certificate, not_provable, same_cost
from rematscope.render.parts import Paragraph, TextTable
from rematscope.render.progress import progress_message
from rematscope.render.units import bytes_text
from rematscope.render.view import View
from rematscope.seconds.devices import Device, resolve_cost
from rematscope.tracing.arguments import shapes_of
from rematscope.tracing.checkpoints import called_once, original_function, without_checkpoints
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.static_values import calling_with_static
from rematscope.tracing.trace import Trace, trace


@with_own_options
def plan(
    f: Callable[..., Any],
    *args: Any,
    saved: int | str | float,
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    **kwargs: Any,
) -> "Plan":
    """Choose what to save so that the backward pass recomputes as little as possible within a limit on saved bytes.

    `plan` compares all choices of names, alone and combined with `dots_saveable` or `dots_with_no_batch_dims_saveable`;
    `everything_saveable`; and `f` as written. It finds the best choice of names by enumeration if there are few names,
    and by solving a 0/1 program otherwise. Policies that offload to host memory are not compared, because a limit on
    saved bytes does not account for the cost of offloading. Finally, `plan` traces the planned function to check that
    JAX saves and recomputes exactly what was predicted.

    Args:
      f: a function that is differentiable in reverse mode, or a training step, whose loss is then planned. It is
        traced, not run. `plan` chooses among the values that `f` names with `checkpoint_name`; without names, the plan
        is the best policy. If `f` has checkpoints, they stay where they are, and the plan is one policy for all of
        them. If it has none, the plan is for one checkpoint around the whole function.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      saved: the limit on the bytes of computed residuals: an integer, a string such as `"12 MiB"` or `"1.5 GB"`, or a
        float from 0.0 (save as little as possible) to 1.0 (save all named values or, if there are no names, as much as
        the policy that saves the most). Saved arguments do not count, because the caller keeps them in memory anyway.
      cost: the cost of recomputing an equation: a function of an `Equation`, or `"seconds"` for the time on `device` by
        a roofline; see `estimate_time`. The default counts FLOPs, transcendentals and bytes sent to other devices; see
        `recompute_graph`.
      device: the device for `cost="seconds"`: a name such as `"tpu v5e"`, a `Device`, or `calibrate()`.

    Returns:
      The plan. `jax.checkpoint(f, policy=plan.policy)` applies it.

    Raises:
      PlanError: if the limit is not valid or cannot be met, or if only one of `cost="seconds"` and `device` is given.
      TargetError: if `device` is not known.
      TraceError: as for `trace`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import plan
      >>> def f(x, w, u):
      ...     return jnp.sin(checkpoint_name(x @ w, "h") @ u)
      >>> args = jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64))
      >>> best = plan(f, *args, saved="8 KiB")
      >>> best.names, best.saved_bytes, best.gap
      (('h',), 8192, 0)
      >>> best.certificate.verify(f, *args)  # raises PlanError if the certificate does not hold
      262144
      >>> planned = jax.checkpoint(f, policy=best.policy)
    """
    __tracebackhide__ = True
    meant = resolve_cost(cost, device)
    with progress_message("planning: which names to save"), gc_paused():
        call = CostedCall(called_once(f, args, kwargs), args, kwargs, meant)
        found = candidates(call)
        if isinstance(saved, float):
            limit = part_of_range(saved, found)
        else:
            limit = budget_bytes(saved, "saved", like="12_000_000, '12 MB', or 0.5 for half")
        made = best_plan(call, found, limit)
    if not found[0].graph.names and made.cost:
        given = shapes_of(args, kwargs)
        made.why_no_names = lambda: no_names(call.f, *given[0], **given[1])
    return made


def best_plan(call: CostedCall, found: Sequence[PolicyCandidate], limit: int) -> "Plan":
    """Return the best plan for a function within `limit` saved bytes, given its candidates."""
    __tracebackhide__ = True
    function = found[0].graph.trace.function
    if limit < (least := least_of(found)):
        raise PlanError(
            f"saved={bytes_text(limit)} is too small: {function} saves at least {least:,} bytes "
            f"({bytes_text(least)}) of computed residuals under any policy: the inputs of its checkpoints, and "
            "the residuals outside of them. Allow that much, or put a checkpoint around a larger part."
        )
    best: tuple[tuple[float, int, bool], PolicyCandidate, tuple[str, ...]] | None = None
    bounds = []
    for candidate in found:
        if least_possible(candidate.graph) <= limit:
            names, bound = Chooser(candidate.graph).cheapest(limit)
            nbytes, again = candidate.graph.evaluate(names)
            bounds.append(min(bound, again))
            # Of equally good choices, the function as written comes first: it needs no change.
            rank = again, nbytes, candidate.label != AS_IT_IS
            if best is None or rank < best[0]:
                best = rank, candidate, names
    assert best is not None, "the choice that saves least is within the limit"
    _, chosen, names = best
    passes = chosen.trace or call.trace(chosen.planned(call.f, names))
    planned = calling_with_static(chosen.planned(original_function(call.f), names), (call.args, call.kwargs))
    given = shapes_of(call.args, call.kwargs)

    def plain() -> Trace:
        traces = (candidate.trace for candidate in found if candidate.label == EVERYTHING)
        return next(traces, None) or trace(without_checkpoints(call.f), *given[0], **given[1])

    made = Plan(tuple(found), chosen, names, planned, passes, limit, min(bounds), plain)
    try:
        made.check(call.cost)
    except PlanError:
        if jax_compat.remat3() and _is_verified(chosen, names, call):
            return made
        if not chosen.label:
            raise
        # The prediction for names combined with the policy was wrong: compare the policy as traced, without names.
        others = [candidate for candidate in found if candidate is not chosen]
        if chosen.trace is None:
            others += candidates_with(call, chosen.label, chosen.policy)
        return best_plan(call, others, limit)
    return made


def _is_verified(chosen: PolicyCandidate, names: tuple[str, ...], call: CostedCall) -> bool:
    """Return whether a plan under remat3 saves and computes what was predicted; see `with_default_roles`."""
    if chosen.trace is not None:
        return True  # the candidate comes from a trace
    return is_predicted(chosen.graph, call, names, chosen.with_names(names))


def plan_as_written(call: CostedCall, found: Sequence[PolicyCandidate]) -> "Plan":
    """Return the plan that leaves the function as written. Its budget is what the function saves."""
    written = as_written(call, found)
    assert written.trace is not None, "the function as written is traced"
    passes = written.trace
    saved, again = written.graph.evaluate(())
    bound = min(again, best_plan(call, found, saved).bound) if again else again
    compared = (*found, *[written] * (written not in found))
    planned = calling_with_static(original_function(call.f), (call.args, call.kwargs))
    return Plan(compared, written, (), planned, passes, saved, bound, lambda: passes)


class Plan(View):
    """The best choice of names and policies within a limit on saved bytes.

    It is displayed as text in a terminal and as HTML in a notebook.

    Attributes:
      names: the names to save, in program order.
      with_policy: the policy that the names are combined with, such as `"dots_saveable"`; `"as written"` if the plan is
        `f` as written; "" for names alone.
      planned: `f` with the plan applied to its checkpoints, or with one checkpoint around it if it has none.
      trace: the trace of `planned`.
      budget: the limit on saved bytes.
      saved_bytes: the bytes of computed residuals that the plan saves.
      cost: the recompute cost of the plan, in the unit of the argument `cost` of `plan`, with all branches of a `cond`.
      bound: a lower bound on the recompute cost of all choices within the limit, proven by the solver. It does not
        include operations of unknown cost.
      graph: the recompute graph of the chosen policy; `graph.evaluate(names)` returns the saved bytes and the recompute
        cost of any choice of names.
      compared: the candidates that the plan was chosen from, names alone first.
    """

    def __init__(
        self,
        compared: tuple[PolicyCandidate, ...],
        chosen: PolicyCandidate,
        names: tuple[str, ...],
        planned: Callable[..., Any],
        passes: Trace,
        budget: int,
        bound: float,
        plain: Callable[[], Trace],
    ):
        self.compared = compared
        self.chosen = chosen
        self.names = names
        self.with_policy = chosen.label
        self.planned = planned
        self.trace = passes
        self.graph = chosen.graph
        self.budget = budget
        self.saved_bytes, self.cost = chosen.graph.evaluate(names)
        self.bound = bound
        self._plain = plain
        self.why_no_names: Callable[[], str] = str

    @cached_property
    def findings(self) -> tuple[LintFinding, ...]:
        """The findings of `lint` about checkpoints around several layers, where names hardly lower the peak.

        They are computed on first use, because they need another trace.
        """
        return tuple(whole_nets(self.trace, self._names_alone.trace, self._plain))

    @cached_property
    def about_names(self) -> str:
        """Why no name in the function is useful, and the names that `lint` suggests, as text; empty if a name is
        useful.

        It is computed on first use.
        """
        return self.why_no_names()

    @property
    def policy(self) -> Callable[..., Any]:
        """The policy to pass to `jax.checkpoint`.

        Raises:
          PlanError: if the plan is `f` as written, and its checkpoints have different policies.
        """
        policy = self.chosen.with_names(self.names)
        if policy is None:
            raise PlanError(
                f"{self.graph.trace.function} is best as written, and its checkpoints have different policies, "
                "so there is no single policy to return. Use it as written: .planned."
            )
        return policy

    @property
    def needs_no_checkpoint(self) -> bool:
        """Whether the plan is `f` as written, and `f` has no checkpoint or only checkpoints that save everything."""
        return self.with_policy == AS_IT_IS and self.chosen.policy is jax.checkpoint_policies.everything_saveable

    @property
    def recompute_flops(self) -> int:
        """The FLOPs that the backward pass of the planned function recomputes."""
        return self.trace.recompute_cost.flops

    @property
    def gap(self) -> float:
        """The difference between `cost` and `bound`: 0 if the plan is proven to be the best.

        The gap is infinite if an operation of unknown cost may be recomputed; see `graph.uncounted`.
        """
        return math.inf if self._names_alone.uncounted else self.cost - self.bound

    @property
    def slack(self) -> int:
        """The limit minus the saved bytes."""
        return self.budget - self.saved_bytes

    @cached_property
    def certificate(self) -> Certificate:
        """The claim that this plan is the best, as plain data. Verify it with `certificate.verify(f, *args)`.

        Raises:
          PlanError: if an operation of unknown cost may be recomputed.
        """
        if self._names_alone.uncounted:
            raise PlanError(not_provable(self._names_alone))
        many = [candidate.graph for candidate in self.compared if not are_few(candidate.graph)]
        return Certificate(
            function=self.graph.trace.function,
            program=digest_of(self.compared),
            budget=self.budget,
            names=self.names,
            saved_bytes=self.saved_bytes,
            objective=self.cost,
            bound=self.bound,
            solver=SOLVER if many else "enumeration of all choices",
            multipliers=tuple(m for graph in many for m in multipliers(zero_one_program(graph), self.budget)),
            with_policy=self.with_policy,
            compared=tuple(candidate.label for candidate in self.compared),
        )

    @property
    def _names_alone(self) -> RecomputeGraph:
        """The graph of names alone, with all operations that any choice recomputes."""
        return self.compared[0].graph

    def check(self, cost: CostFunction = work) -> None:
        """Trace the planned function and check that JAX saves and recomputes what the plan predicts.

        Args:
          cost: the same value as for `plan`.

        Raises:
          PlanError: if the saved bytes or the recompute cost differ.
        """
        kept = self.trace.device_bytes_by_kind().get("computed", 0)
        again = recompute_cost_of(self.trace, cost)
        if kept == self.saved_bytes and same_cost(again, self.cost):
            return
        why = "Please report this function, because rematscope misinterprets one of its checkpoints."
        raise PlanError(
            f"the plan for {self.trace.function} saves {self.saved_bytes:,} bytes at a cost of {self.cost:,}, "
            f"but with these names JAX saves {kept:,} bytes at a cost of {again:,}. {why}"
        )

    def parts(self) -> Iterable[View]:
        cells = self._table_cells()
        about = TextTable(cells, self._footer_text(), numeric=("Bytes", "Recompute avoided"))
        table = about if len(cells) > 1 else Paragraph(self._footer_text())
        texts = (finding.text for finding in self.findings)
        more = [*texts, self.about_names, self._left_out_by_remat3, self._about_kernels]
        return [Paragraph(self._headline_text()), table, *map(Paragraph, filter(None, more))]

    def _headline_text(self) -> str:
        chosen, all_of = len(self.names), len(self._names_alone.names)
        what = f"save {chosen} of {all_of} names" if all_of and (chosen or not self.with_policy) else ""
        if self.with_policy == AS_IT_IS:
            what = "best as written"
        elif self.with_policy:
            what += f"{' and ' if what else 'save '}what {self.with_policy} does"
        elif not all_of:
            what = "save nothing"
        return (
            f"{self.graph.trace.function}{self.trace.mode_text}: {what}, "
            f"{bytes_text(self.saved_bytes)} of {bytes_text(self.budget)}{self.trace.per_device_text}; "
            f"{bytes_text(self.slack)} left"
        )

    @property
    def _left_out_by_remat3(self) -> str:
        """The names that the plan leaves out because JAX saves them differently with `jax_remat3`; empty if none."""
        barred = self._names_alone.barred
        names = ", ".join(repr(name) for name, reason in barred.items() if reason == SAVED_DIFFERENTLY)
        return f"Left out: {names}. With jax_remat3, JAX does not save them as by default; lint says why." * bool(names)

    @cached_property
    def _recomputed_kernels(self) -> list[str]:
        """The primitives of fused attention that the planned backward pass recomputes. No name reaches all results."""
        again = {e.primitive for e, _ in self.trace.backward.walk() if e.role == RECOMPUTED}
        return sorted(again & FORWARD_KERNELS)

    @property
    def _about_kernels(self) -> str:
        """The policy that would save the results of recomputed kernels; empty without such kernels."""
        by_policy = "use a policy of your own that returns True for the primitive {!r}."
        how = SAVED_BY_A_RULE if self.trace.remat3 else by_policy
        return " ".join(
            f"The plan recomputes {kernel}, because the backward kernel reads its output and its log-sum-exp inside of "
            f"its derivative rule, which no name outside of the rule reaches. To save both, {how.format(kernel)}"
            for kernel in self._recomputed_kernels
        )

    def _footer_text(self) -> str:
        """Return what the plan recomputes, what is proven, and a plan of nearly the same cost with fewer bytes."""
        _, worst = self._names_alone.evaluate(())
        amount = self._names_alone.amount
        choice = "no choice of these names and JAX's policies"
        again = f"recomputes {amount(self.cost)}"
        if worst > self.cost:
            again += f", and {amount(worst)} if nothing is saved"
        again += self._names_alone.weighing
        if self._names_alone.uncounted:
            again += f"; {self._names_alone.uncounted_text}, so another choice may recompute less"
        elif not self.cost:
            again = "recomputes nothing"
            if worst:
                again += f"; with nothing saved, the backward pass recomputes {amount(worst)}"
        elif self.gap <= 0:
            again += f"; {choice} within the budget recomputes less"
        elif self.bound > 0:
            again += f"; {choice} within the budget recomputes less than {amount(self.bound)}"
        else:
            again += f"; the solver stopped before it could prove that {choice} within the budget recomputes less"
        if is_left_out(self.compared):
            again += ". Policies that offload values to host memory are not compared, including the function's own"
        return again + self._nearly_as_good

    @property
    def _nearly_as_good(self) -> str:
        """Return a choice that saves at most half as much and recomputes hardly more; empty without one."""
        _, worst = self._names_alone.evaluate(())
        allowed = self.cost + _HARDLY * worst
        found = []
        for candidate in self.compared:
            graph = candidate.graph
            if graph.evaluate(graph.names)[1] <= allowed:
                found.append(graph.evaluate(Chooser(graph).smallest(allowed)))
        nbytes, again = min(found)
        if 2 * nbytes > self.saved_bytes or not self.saved_bytes:
            return ""
        return (
            f". Nearly as good: a plan with saved={budget_code(nbytes)} recomputes {self._names_alone.amount(again)} "
            f"and saves {bytes_text(self.saved_bytes - nbytes)} less"
        )

    def _table_cells(self) -> list[list[str]]:
        """Return the policy's row, and one per name: its bytes, and the recompute that it avoids next to the others."""
        rows = [["Save", "Name", "Bytes", "Recompute avoided", "Line"]]
        if self.with_policy and not self.needs_no_checkpoint:
            kept, again = self._names_alone.evaluate(self.names)
            amounts = _signed_bytes(self.saved_bytes - kept), self._names_alone.amount(again - self.cost)
            rows.append(["✓", self.with_policy, *amounts, "a policy"])
        for name in self.graph.names:
            here = name in self.names
            others = [n for n in self.names if n != name]
            without, with_it = self.graph.evaluate(others), self.graph.evaluate([*others, name])
            named = [n.equation for n in self.graph.nodes if n.name == name and n.equation]
            line = "\n".join(filter(None, [common_path(e.module for e in named), str(named[0].source or "")]))
            spared = " + ".join(
                [self._names_alone.amount(without[1] - with_it[1]), *self._unknown_spared(name, others)]
            )
            rows.append(["✓" if here else "", name, bytes_text(with_it[0] - without[0]), spared, line])
        return rows

    def _unknown_spared(self, name: str, others: list[str]) -> list[str]:
        """Return the primitives of unknown cost that saving a name avoids, next to the other names."""
        if not self.graph.uncounted:
            return []
        without, with_it = (self.graph.walk(frozenset(names)) for names in (others, [*others, name]))
        return sorted(frozenset[str]().union(*(node.uncounted for node in without - with_it)))


# Of what saving nothing recomputes: less than this is lost among a clock's differences from run to run.
_HARDLY = 0.01


def _signed_bytes(count: int) -> str:
    return f"−{bytes_text(-count)}" if count < 0 else bytes_text(count)

"""The policies that a plan compares: names alone, names combined with a policy of JAX, and other policies alone.

The best values to save may be inside library calls, where no name can be written, but where JAX's policies apply.
`dots_saveable` and `dots_with_no_batch_dims_saveable` are called for each operation of the trace in which nothing is
saved. The results for which they return True are always saved, and names are chosen in addition, as with
`save_from_both_policies`. `everything_saveable`, and the function as written, are traced unmodified. Without a
checkpoint, the function as written recomputes nothing, and if its residuals fit, no checkpoint is needed.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.choices.build import (
    CostedCall,
    graph_of,
    is_predicted,
    operations_rerun,
    recompute_graph,
    with_default_roles,
)
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.errors import PlanError, TraceError
from rematscope.ir import roles
from rematscope.ir.program import Equation, Program
from rematscope.jax_compat import Policy
from rematscope.tracing.checkpoints import CalledOnce, checkpoints, nothing, with_policies, with_policy
from rematscope.tracing.trace import Trace

# Those of JAX's policies that save some results of matmuls, by increasing saved bytes.
MATMUL_POLICIES = ("dots_with_no_batch_dims_saveable", "dots_saveable")
EVERYTHING = "everything_saveable"
AS_IT_IS = "as written"

# A policy is called for the operations inside these calls; any other call counts as one operation.
_OPENED = jax_compat.JITS | jax_compat.CHECKPOINTS | {"eval_jaxpr"}
_LOOPS = frozenset({"scan", "shard_map"})


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PolicyCandidate:
    """A policy, and the choices of names in addition to it.

    Attributes:
      label: the policy's name, `"as written"` for the function as written; "" for names alone.
      graph: the recompute graph with the policy.
      policy: the policy; None for names alone, or if the function has several policies. For a function without
        checkpoints it is `everything_saveable`, which saves the same residuals.
      trace: the function's trace with the policy, if no names can be chosen in addition.
    """

    label: str
    graph: RecomputeGraph
    policy: Policy | None = None
    trace: Trace | None = None

    def with_names(self, names: tuple[str, ...]) -> Policy | None:
        """Return the policy that also saves these names; None if the function has several policies."""
        if self.trace is not None or (self.policy is not None and not names):
            return self.policy
        chosen: Policy = jax.checkpoint_policies.save_only_these_names(*names)
        if self.policy is None:
            return chosen
        both: Policy = jax.checkpoint_policies.save_from_both_policies(self.policy, chosen)
        return both

    def planned(self, f: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
        """Return `f` with this policy and these names in its checkpoints."""
        return f if self.label == AS_IT_IS else with_policy(f, self.with_names(names))


def candidates(call: CostedCall) -> tuple[PolicyCandidate, ...]:
    """Return all policies that a plan of a function compares, names alone first.

    Raises:
      TraceError: as for `recompute_graph`.
      PlanError: as for `recompute_graph`, and if a checkpoint would run an operation again whose result then differs,
        such as `lax.rng_uniform`.
    """
    alone = recompute_graph(call.f, *call.args, cost=call.cost, **call.kwargs)
    if rerun := operations_rerun(alone.trace):
        source = rerun[0].source
        line = f" on {source.where}" if source else ""
        raise PlanError(
            f"{alone.trace.function} runs {rerun[0].primitive}{line}, which gives a different result each time it "
            "runs. A checkpoint would run it again in the backward pass, and the gradient would be wrong. Draw the "
            "numbers with jax.random and a key, or compute them outside and pass them as an argument."
        )
    found = [PolicyCandidate("", alone)]

    seen: set[frozenset[Equation]] = set()
    for label in MATMUL_POLICIES:
        policy = getattr(jax.checkpoint_policies, label)
        saved = saved_by(alone.trace, policy)
        if saved is None:
            found += candidates_with(call, label, policy)
        elif saved and saved not in seen:
            seen.add(saved)
            graph = graph_of(alone.trace, call.cost, saved, alone.barred)
            if jax_compat.remat3() and not is_predicted(graph, call, names=(), policy=policy):
                found += candidates_with(call, label, policy)
            else:
                found.append(PolicyCandidate(label, graph, policy))
    save_all = jax.checkpoint_policies.everything_saveable
    if not alone.policies:
        # If its checkpoints save nothing, this candidate would equal the choice of no names.
        nothing_saved = alone.evaluate(())
        written = candidates_with(call, AS_IT_IS, save_all)
        found += [each for each in written if not nothing_saved[1] or each.graph.evaluate(()) != nothing_saved]
    elif _has_policies(alone):
        only = alone.policies[0] if len(alone.policies) == 1 else None
        found += candidates_with(call, AS_IT_IS, only)
    found += candidates_with(call, EVERYTHING, save_all)
    return tuple(found)


def as_written(call: CostedCall, found: Sequence[PolicyCandidate]) -> PolicyCandidate:
    """Return the function as written: one of the candidates, or as JAX traces it now."""
    for candidate in found:
        if candidate.label == AS_IT_IS:
            return candidate
    passes = call.trace(call.f)
    return PolicyCandidate(AS_IT_IS, graph_of(passes, call.cost), trace=passes)


def candidates_with(call: CostedCall, label: str, policy: Policy | None) -> Iterator[PolicyCandidate]:
    """Yield the candidate of a policy without a choice of names, from JAX's trace; none if JAX cannot trace it."""
    f = call.f
    planned = f if label == AS_IT_IS else with_policy(f, policy)
    # A `CalledOnce` is a jaxpr. Only `with_policies` converts its checkpoints to another mode.
    is_jaxpr = label == AS_IT_IS and isinstance(f, CalledOnce) and any(checkpoints(f.jaxpr))
    again = with_policies(f, lambda own: own) if is_jaxpr else planned
    try:
        passes = call.trace(planned)
    except (TypeError, NotImplementedError, TraceError):
        return  # JAX fails to save some values, complex numbers among them
    if not passes.host_bytes():  # what is moved to the host is no budget's
        graph = graph_of(with_default_roles(passes, call, again), call.cost)
        yield PolicyCandidate(label, graph, policy, passes)


def digest_of(found: Sequence[PolicyCandidate]) -> str:
    """Return the SHA-256 of all data that a choice among these candidates depends on."""
    return hashlib.sha256("\n".join(f"{each.label} {each.graph.digest}" for each in found).encode()).hexdigest()


def is_left_out(found: Sequence[PolicyCandidate]) -> bool:
    """Return whether the function as written is left out, because no budget limits the values that it offloads."""
    return _has_policies(found[0].graph) and all(candidate.label != AS_IT_IS for candidate in found)


def _has_policies(graph: RecomputeGraph) -> bool:
    """Return whether the function's own policies cannot be expressed as one choice of names."""
    names = {jax_compat.policy_name(policy) for policy in graph.policies}
    return len(graph.policies) > 1 or not names <= {"save_only_these_names"}


def saved_by(passes: Trace, policy: Policy) -> frozenset[Equation] | None:
    """Return the recomputed equations whose results a policy would save.

    Returns:
      The equations whose results the policy saves. None if this cannot be determined: for branches, whose residuals
      share memory; for custom rules, whose checkpoints keep their own policies; and if JAX refuses complex numbers.
    """
    found = []
    for equation, in_branch in _checkpoint_recompute(passes.backward, False):
        inside = _calls_inside(equation)
        checkpoints = [eqn for eqn in inside if jax_compat.is_checkpoint(eqn)]
        opaque = [eqn for eqn in inside if eqn.primitive.name not in _OPENED | _LOOPS | {"cond"}]
        asked = opaque[-1] if opaque else equation.eqn
        if policy(asked.primitive, *(v.aval for v in asked.invars), **asked.params):
            foreign = any(jax_compat.policy_of(eqn) is not nothing for eqn in checkpoints)
            is_complex = any(value.dtype.kind == "c" for value in equation.outputs)
            if in_branch or opaque or foreign or is_complex:
                return None
            found.append(equation)
    return frozenset(found)


def _calls_inside(equation: Equation) -> list[JaxprEqn]:
    """Return the calls that contain an equation, innermost first, up to the outermost checkpoint."""
    places = [i for i, eqn in enumerate(equation.calls) if jax_compat.is_checkpoint(eqn)]
    return list(equation.calls[: places[-1] + 1]) if places else []


def _checkpoint_recompute(program: Program, in_branch: bool) -> Iterator[tuple[Equation, bool]]:
    """Yield the equations that checkpoints recompute, and whether each is in a branch.

    The bodies of `while` loops are left out, because JAX calls no policy for them.
    """
    for equation in program.equations:
        if equation.primitive == "while":
            continue
        for body in equation.bodies:
            yield from _checkpoint_recompute(body, in_branch or equation.primitive == "cond")
        if equation.bodies or equation.role == roles.BACKWARD:
            continue
        inside = _calls_inside(equation)
        # In the body of a checkpoint, name stacks distinguish the recompute from the backward pass.
        stacks = [eqn.source_info.name_stack for eqn in (equation.eqn, *inside[:-1])]
        if inside and any("rematted_computation" in str(stack) for stack in stacks):
            yield equation, in_branch

"""The rules about checkpoints and policies: which have no effect, and why."""

import difflib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax
from jax.ad_checkpoint import Recompute
from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.ir.cost import operations
from rematscope.ir.primitives import MATMULS
from rematscope.ir.source import Source
from rematscope.linting.finding import LintFinding, LintKind
from rematscope.linting.linted_function import (
    Checkpoint,
    LintedFunction,
    has_own_computations,
    line_text,
    on_line,
    saved_bytes,
    source_of,
)
from rematscope.linting.whole_nets import whole_nets
from rematscope.memory.liveness import live_bytes
from rematscope.memory.xla_estimate.estimate import estimate_compiled_bytes
from rematscope.render.units import amount_text, bytes_text, first_of, joined
from rematscope.tracing.checkpoints import nothing
from rematscope.tracing.trace import Trace, programs_of

_NOTABLE = 1.05  # the smallest ratio of predicted peaks that is reported


def checkpoint_findings(linted: LintedFunction, graph: RecomputeGraph) -> Iterator[LintFinding]:
    """Yield the findings about checkpoints and their policies, once for repeated layers.

    Args:
      graph: its recompute graph, in which values may have names in addition to the function's own.
    """
    groups: dict[tuple[Source | None, ...], list[Checkpoint]] = {}
    for checkpoint in linted.checkpoints:
        groups.setdefault(checkpoint.lines, []).append(checkpoint)
    mistaken: set[tuple[Source | None, ...]] = set()
    for finding, checkpoints in _unknown_names(linted, graph):
        mistaken.update(checkpoint.lines for checkpoint in checkpoints)
        yield finding
    for lines, group in groups.items():
        first = group[0]
        if "save_anything_except_these_names" in jax_compat.policy_name(first.policy):
            text = (
                f"The policy of the checkpoint {on_line(first.source)}, save_anything_except_these_names, ignores its "
                "names and saves everything. Use save_any_names_but_these, or write a policy."
            )
            yield LintFinding(LintKind.IGNORED_NAMES, text, first.source)
        elif first.outer is None and lines not in mistaken:
            yield from _saving_nothing(linted, graph, group)
        if exposed := [c for c in group if not jax_compat.prevents_cse(c.eqn)]:
            yield from _unprotected_findings(linted, exposed)
        if first.outer is not None:
            yield from _nested_findings(linted, group, first.outer)
    if linted.checkpoints:
        yield from whole_nets(linted.trace, graph.trace, lambda: linted.without(linted.checkpoints))


def _unprotected_findings(linted: LintedFunction, group: list[Checkpoint]) -> Iterator[LintFinding]:
    """Yield findings about repeated checkpoints with `prevent_cse=False`."""
    outer = group[0].outer
    if linted.remat3 and outer is not None:
        return  # jax_remat3 puts a barrier around its recompute
    if merged := [c for c in group if c.runs_with_forward_pass]:
        if outer is None:
            is_undone = any(_has_matmuls(c) or not _has_loops(c) for c in merged)
        else:
            recompute = operations(linted.trace.cost) - operations(linted.without(merged).cost)
            is_undone = recompute > 0 and any(map(_has_matmuls, merged))
        if is_undone:
            original = "the forward pass" if outer is None else "the recompute of the outer checkpoint"
            text = (
                f"The checkpoint {on_line(merged[0].source)} has prevent_cse=False and is {_place_text(merged[0])}. "
                f"Under jax.jit, common subexpression elimination (CSE) may merge its recompute with {original} "
                "and save everything after all. Remove prevent_cse=False."
            )
            yield LintFinding(LintKind.UNDONE, text, merged[0].source)
            return
    if crowded := [c for c in group if not c.runs_with_forward_pass and _shares_body(linted, c)]:
        protected = linted.with_checkpoints_changed(crowded, jax_compat.with_barrier)
        now, then = map(estimate_compiled_bytes, (linted.trace, protected))
        if now > then * _NOTABLE and _matmul_count(linted.trace) > _matmul_count(linted.without(crowded)):
            text = (
                f"The checkpoint {on_line(crowded[0].source)} has prevent_cse=False, and one iteration of a loop, or a "
                "branch, runs it and other checkpoints. XLA for a CPU recomputes all of them before their backward "
                f"passes. The predicted peak is {bytes_text(now)}, and {bytes_text(then)} with prevent_cse=True. "
                "Remove prevent_cse=False."
            )
            yield LintFinding(LintKind.RECOMPUTED_EARLY, text, crowded[0].source)


def _matmul_count(passes: Trace) -> int:
    return sum(e.primitive in MATMULS for program in programs_of(passes) for e, _ in program.walk())


def _has_matmuls(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint contains matmuls outside of its loops, which XLA can merge with equal ones."""
    inside = jax_compat.walk_equations(jax_compat.bodies(checkpoint.eqn)[0])
    return any(eqn.primitive.name in MATMULS and not any(map(has_own_computations, around)) for eqn, around in inside)


def _has_loops(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint contains loops, which XLA does not merge."""
    return any(map(has_own_computations, checkpoint.equations()))


def _shares_body(linted: LintedFunction, checkpoint: Checkpoint) -> bool:
    """Return whether an iteration of the loop, or the branch, around a checkpoint contains several checkpoints."""
    body = checkpoint.body
    assert body is not None, "its recompute is not in the computation of the forward pass"
    unroll = max((eqn.params.get("unroll", 1) for eqn in checkpoint.around if eqn.primitive.name == "scan"), default=1)
    return unroll > 1 or sum(other.body is body for other in linted.checkpoints) > 1


def _place_text(checkpoint: Checkpoint) -> str:
    """Return where a checkpoint is that no loop or `cond` separates from its first run."""
    if (outer := checkpoint.outer) is not None:
        return f"inside the checkpoint {on_line(outer.source)}, without a loop between them"
    if (scan := checkpoint.unrolled_scan) is None:
        return "not inside a scan"
    length, unroll = scan.params["length"], scan.params["unroll"]
    if length == 1:
        return "inside a scan with one iteration, which is not a loop in the compiled program"
    return f"inside a scan with {length} iterations and unroll={unroll}, so the compiled program has no loop"


def _unknown_names(linted: LintedFunction, graph: RecomputeGraph) -> Iterator[tuple[LintFinding, list[Checkpoint]]]:
    """Yield findings about names in policies that no value has, with the checkpoints whose policy finds no name."""
    named = {jax_compat.checkpoint_name(eqn) for eqn, _ in jax_compat.walk_equations(linted.jaxpr)} - {None}
    in_rules = {node.name for node in graph.nodes} - named
    by_names: dict[frozenset[str], list[Checkpoint]] = {}
    for checkpoint in linted.checkpoints:
        if wanted := frozenset(jax_compat.names_in_policy(checkpoint.policy)):
            by_names.setdefault(wanted, []).append(checkpoint)
    for wanted, group in by_names.items():
        here = {name for c in group for eqn in c.equations() if (name := jax_compat.checkpoint_name(eqn)) is not None}
        unknown = sorted(wanted - here - in_rules, key=repr)
        policy, line = jax_compat.policy_name(group[0].policy), on_line(group[0].source)
        for missing in unknown:
            given = f"{policy}, the policy of the checkpoint {line}, names {missing!r}"
            text = f"{given}, but no value inside the checkpoint has that name. "
            if missing in named:
                text += (
                    "A value outside of it does: move that value into the checkpoint, or remove the name from the "
                    "policy."
                )
            elif near := _nearest_name(missing, here):
                text += f"Did you mean {near!r}?"
            elif here:
                text += f"The names inside it are {', '.join(sorted(map(repr, here)))}."
            else:
                text += "No value inside it has a name. Add one with jax.ad_checkpoint.checkpoint_name."
            finds_none = len(unknown) == len(wanted)
            yield LintFinding(LintKind.UNKNOWN_NAME, text, group[0].source), group if finds_none else []


def _nearest_name(name: object, names: Collection[str]) -> str | None:
    lower = {known.lower(): known for known in sorted(names)}
    found = difflib.get_close_matches(str(name).lower(), lower, 1)
    return lower[found[0]] if found else None


def _saving_nothing(linted: LintedFunction, graph: RecomputeGraph, group: list[Checkpoint]) -> Iterator[LintFinding]:
    first = group[0]
    if (policy := first.policy) is None or policy is jax.checkpoint_policies.nothing_saveable:
        return
    kept = saved_bytes(linted.trace)
    if kept != saved_bytes(graph.trace):
        saving_nothing = linted.with_checkpoints_changed(group, lambda eqn: jax_compat.replace_policy(eqn, nothing))
        if kept != saved_bytes(saving_nothing):
            return
    named, reason = jax_compat.policy_name(policy), _why_nothing(first, policy)
    text = f"{named}, the policy of the checkpoint {on_line(first.source)}, saves nothing here: {reason}"
    yield LintFinding(LintKind.SAVES_NOTHING, text, first.source)


def _why_nothing(checkpoint: Checkpoint, policy: Callable[..., Any]) -> str:
    named = jax_compat.policy_name(policy)
    matmuls = [eqn for eqn in checkpoint.equations() if eqn.primitive.name in MATMULS]
    allowed = [eqn for eqn in checkpoint.equations() if policy_allows(policy, eqn)]
    if allowed:
        operations = ", ".join(dict.fromkeys(jax_compat.checkpoint_name(eqn) or eqn.primitive.name for eqn in allowed))
        return (
            f"it saves {operations}, but the backward pass needs none of these values. Remove the policy, or "
            "save the inputs of matmuls and nonlinearities."
        )
    covered = any(policy_allows(jax.checkpoint_policies.dots_saveable, eqn) for eqn in matmuls)
    if "dot" in named and matmuls and not covered:
        kinds = joined(sorted({eqn.primitive.name.removesuffix("_general") for eqn in matmuls}))
        lines = first_of(line_text(source_of(eqn, ())) for eqn in matmuls)
        return f"it does not cover {kinds}, on {lines}. Name the results, and save them by name."
    if "dot" in named and not matmuls:
        return "there is no matmul inside the checkpoint. Name the values to save, and save them by name."
    if "no_batch_dims" in named:
        lines = first_of(line_text(source_of(eqn, ())) for eqn in matmuls)
        return (
            f"every matmul inside it, on {lines}, has batch dimensions, as vmap over the weights adds them. Use "
            "dots_saveable, or name the results of the matmuls."
        )
    if "name" in named:
        return "no value inside the checkpoint has one of its names. Add a name with jax.ad_checkpoint.checkpoint_name."
    return "it returns False for every operation. Remove it, or print the operations that it is called with."


def policy_allows(policy: Callable[..., Any], eqn: JaxprEqn) -> bool:
    """Return whether a policy returns True for an equation, or offloads its result."""
    try:
        answer = policy(eqn.primitive, *(v.aval for v in eqn.invars), **eqn.params)
    except Exception:  # a policy of the user may need more than it is given here
        return False
    return answer if isinstance(answer, bool) else answer is not Recompute


def _nested_findings(linted: LintedFunction, group: list[Checkpoint], around: Checkpoint) -> Iterator[LintFinding]:
    first = group[0]
    line, outer = on_line(first.source), on_line(around.source)
    outer = f"another one {outer}" if line == outer else f"the one {outer}"
    now, without = linted.trace, linted.without(group)
    peaks = [live_bytes(passes).peak_bytes for passes in (now, without)]
    more = operations(now.cost) - operations(without.cost)
    if peaks[1] <= peaks[0] and more >= 0:
        counted = not (now.cost.uncounted or without.cost.uncounted)
        as_much = ", with equal compute" if counted else ""
        cost = f", with {amount_text(more)} more operations" if more else as_much
        text = (
            f"The checkpoint {line} is inside {outer} and has no effect: it cannot save a value that the outer "
            f"checkpoint does not save. The peak is {bytes_text(peaks[0])} with it and {bytes_text(peaks[1])} "
            f"without it{cost}. Remove it."
        )
        yield LintFinding(LintKind.NESTED, text, first.source)
    elif first.policy not in (None, jax.checkpoint_policies.nothing_saveable):
        kept = now.device_bytes_by_kind().get("computed", 0)
        outer_lines = [first.lines[i:] for i in range(1, len(first.lines))]
        alone = linted.without([c for c in linted.checkpoints if c.lines in outer_lines])
        wanted = alone.device_bytes_by_kind().get("computed", 0)
        if wanted > kept:
            text = (
                f"The checkpoint {line} is inside {outer}, whose policy decides: the forward pass saves "
                f"{bytes_text(kept)}. Without the outer checkpoint it would save {bytes_text(wanted)}. Give the "
                "policy to the outer checkpoint, or remove the outer checkpoint."
            )
            yield LintFinding(LintKind.OVERRIDDEN, text, first.source)

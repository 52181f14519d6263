"""The rules about checkpoints and policies: which ones have no effect, and why."""

import difflib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax
from jax.ad_checkpoint import Recompute
from jax.extend.core import JaxprEqn

from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.ir import jax_internals
from rematscope.ir.source import Source
from rematscope.linting.dataflow import PRODUCTS
from rematscope.linting.finding import LintFinding, LintKind
from rematscope.linting.subject import Checkpoint, Subject, everything, on, source_of, where
from rematscope.linting.whole_nets import whole_nets
from rematscope.memory.liveness import live_bytes
from rematscope.render.units import amount_text, bytes_text
from rematscope.tracing.checkpoints import nothing
from rematscope.tracing.trace import Trace


def checkpoint_findings(subject: Subject, graph: RecomputeGraph) -> Iterator[LintFinding]:
    """What is wrong with each checkpoint and its policy, once for like layers.

    Args:
      subject: the function.
      graph: what its backward pass computes again, where values may have names that the function does not give.
    """
    groups: dict[tuple[Source | None, ...], list[Checkpoint]] = {}
    for checkpoint in subject.checkpoints:
        groups.setdefault(checkpoint.lines, []).append(checkpoint)
    mistaken: set[tuple[Source | None, ...]] = set()
    for finding, checkpoints in _unknown_names(subject, graph):
        mistaken.update(checkpoint.lines for checkpoint in checkpoints)
        yield finding
    for lines, group in groups.items():
        first = group[0]
        if "save_anything_except_these_names" in jax_internals.policy_name(first.policy):
            text = (
                f"The policy of the checkpoint {on(first.source)}, save_anything_except_these_names, ignores the "
                "names that it is given and saves everything. Use save_any_names_but_these, or write a policy."
            )
            yield LintFinding(LintKind.IGNORED_NAMES, text, first.source)
        elif first.outer is None and lines not in mistaken:
            yield from _saving_nothing(subject, graph, group)
        if not any(jax_internals.prevents_cse(c.eqn) or c.in_a_loop for c in group):
            text = (
                f"The checkpoint {on(first.source)} has prevent_cse=False and stands in no scan. Under jax.jit "
                "the compiler may take what it computes again for what was computed before, and keep that. Leave "
                "prevent_cse out."
            )
            yield LintFinding(LintKind.UNDONE, text, first.source)
        if first.outer is not None:
            yield from _nested(subject, group, first.outer)
    if subject.checkpoints:
        yield from whole_nets(subject.trace, graph.trace, lambda: subject.without(subject.checkpoints))


def _unknown_names(subject: Subject, graph: RecomputeGraph) -> Iterator[tuple[LintFinding, list[Checkpoint]]]:
    """Names that policies ask for in vain; with each, the checkpoints whose policy finds none of its names."""
    named = {name for eqn, _ in everything(subject.jaxpr) if (name := jax_internals.checkpoint_name(eqn)) is not None}
    in_rules = {node.name for node in graph.nodes} - named
    by_names: dict[frozenset[str], list[Checkpoint]] = {}
    for checkpoint in subject.checkpoints:
        if wanted := frozenset(jax_internals.names_in_policy(checkpoint.policy)):
            by_names.setdefault(wanted, []).append(checkpoint)
    for wanted, group in by_names.items():
        here = {
            name for c in group for eqn in c.equations() if (name := jax_internals.checkpoint_name(eqn)) is not None
        }
        unknown = sorted(wanted - here - in_rules, key=repr)
        policy, line = jax_internals.policy_name(group[0].policy), on(group[0].source)
        for missing in unknown:
            given = f"{policy}, the policy of the checkpoint {line}, is given {missing!r}"
            text = f"{given}, and no value in it has that name. "
            if missing in named:
                text += "A value outside it has: put the checkpoint around that too, or take the name away."
            elif near := _nearest(missing, here):
                text += f"Did you mean {near!r}?"
            elif here:
                text += f"The names there are {', '.join(sorted(map(repr, here)))}."
            else:
                text += "Nothing there has one: give it with jax.ad_checkpoint.checkpoint_name."
            finds_none = len(unknown) == len(wanted)
            yield LintFinding(LintKind.UNKNOWN_NAME, text, group[0].source), group if finds_none else []


def _nearest(name: object, names: Collection[str]) -> str | None:
    lower = {known.lower(): known for known in sorted(names)}
    found = difflib.get_close_matches(str(name).lower(), lower, 1)
    return lower[found[0]] if found else None


def _saving_nothing(subject: Subject, graph: RecomputeGraph, group: list[Checkpoint]) -> Iterator[LintFinding]:
    first = group[0]
    if (policy := first.policy) is None or policy is jax.checkpoint_policies.nothing_saveable:
        return
    kept = _kept(subject.trace)
    if kept != _kept(graph.trace):
        here = {id(checkpoint.eqn) for checkpoint in group}

        def change(eqn: JaxprEqn, old: JaxprEqn) -> list[JaxprEqn]:
            return [jax_internals.given_policy(eqn, nothing) if id(old) in here else eqn]

        if kept != _kept(subject.trace_of(subject.changed(change))):
            return
    named, reason = jax_internals.policy_name(policy), _why_nothing(first, policy)
    text = f"{named}, the policy of the checkpoint {on(first.source)}, saves nothing here: {reason}"
    yield LintFinding(LintKind.SAVES_NOTHING, text, first.source)


def _kept(passes: Trace) -> int:
    """Bytes of computed values that are kept anywhere."""
    return passes.bytes_by_kind().get("computed", 0) + passes.host_bytes()


def _why_nothing(checkpoint: Checkpoint, policy: Callable[..., Any]) -> str:
    named = jax_internals.policy_name(policy)
    products = [eqn for eqn in checkpoint.equations() if eqn.primitive.name in PRODUCTS]
    allowed = [eqn for eqn in checkpoint.equations() if _allows(policy, eqn)]
    if allowed:
        operations = ", ".join(
            dict.fromkeys(jax_internals.checkpoint_name(eqn) or eqn.primitive.name for eqn in allowed)
        )
        return (
            f"it allows {operations}, and the backward pass needs none of their results. Leave the policy out, or save "
            "what goes into a product or a nonlinearity."
        )
    if "dot" in named and not products:
        return "there is no matrix product in it. Name what is worth keeping, and save it by name."
    if "no_batch_dims" in named:
        return (
            f"every product in it, {_products(products)}, has batch dimensions, as vmap over the weights gives them. "
            "Use dots_saveable, or name the products."
        )
    if "name" in named:
        return "no value in it has a name that it saves. Give one with jax.ad_checkpoint.checkpoint_name."
    return "it allows the result of no operation. Leave it out, or print what it is called with."


def _products(eqns: list[JaxprEqn]) -> str:
    lines = list(dict.fromkeys(where(source_of(eqn, ())) for eqn in eqns))
    return f"on {', '.join(lines[:3])}" + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")


def _allows(policy: Callable[..., Any], eqn: JaxprEqn) -> bool:
    try:
        answer = policy(eqn.primitive, *(v.aval for v in eqn.invars), **eqn.params)
    except Exception:  # it knows more than is to be had here
        return False
    return answer if isinstance(answer, bool) else answer is not Recompute


def _nested(subject: Subject, group: list[Checkpoint], around: Checkpoint) -> Iterator[LintFinding]:
    first = group[0]
    line, outer = on(first.source), on(around.source)
    outer = f"another one {outer}" if line == outer else f"the one {outer}"
    now, without = subject.trace, subject.without(group)
    peaks = [live_bytes(passes).peak_bytes for passes in (now, without)]
    more = _total(now) - _total(without)
    if peaks[1] <= peaks[0] and more >= 0:
        counted = not (now.cost.uncounted or without.cost.uncounted)
        as_much = ", and as much is computed" if counted else ""
        cost = f", and {amount_text(more)} more is computed" if more else as_much
        text = (
            f"The checkpoint {line} stands in {outer} and has no effect: what that one does not keep, it cannot. "
            f"The peak is {bytes_text(peaks[0])} with it and {bytes_text(peaks[1])} without{cost}. Take it away."
        )
        yield LintFinding(LintKind.NESTED, text, first.source)
    elif first.policy not in (None, jax.checkpoint_policies.nothing_saveable):
        kept = now.device_bytes_by_kind().get("computed", 0)
        outer_lines = [first.lines[i:] for i in range(1, len(first.lines))]
        alone = subject.without([c for c in subject.checkpoints if c.lines in outer_lines])
        wanted = alone.device_bytes_by_kind().get("computed", 0)
        if wanted > kept:
            text = (
                f"The checkpoint {line} stands in {outer}, whose policy decides what is kept for the backward pass: "
                f"{bytes_text(kept)}, where it would be {bytes_text(wanted)} without that one. Give the policy to the "
                "outer checkpoint, or take that away."
            )
            yield LintFinding(LintKind.OVERRIDDEN, text, first.source)


def _total(passes: Trace) -> int:
    return passes.cost.flops + passes.cost.transcendentals

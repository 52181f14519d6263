"""Which checkpoints and policies have no effect, and why."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Iterator

import jax
from jax.ad_checkpoint import Recompute
from jax.extend import source_info_util
from jax.extend.core import JaxprEqn

from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.ir import jax_internals, roles
from rematscope.ir.program import Equation, Program, Value, type_text
from rematscope.ir.source import Source
from rematscope.linting.dataflow import PRODUCTS
from rematscope.linting.finding import LintFinding
from rematscope.linting.subject import Checkpoint, Subject, everything, source_of, where
from rematscope.memory.liveness import live_bytes
from rematscope.render.units import amount_text, bytes_text
from rematscope.tracing.checkpoints import nothing
from rematscope.tracing.trace import Passes

_SEVERAL = 3  # like layers that make a net


# Checkpoints and their policies


def checkpoint_findings(subject: Subject, graph: RecomputeGraph) -> Iterator[LintFinding]:
    groups: dict[tuple, list[Checkpoint]] = {}
    for checkpoint in subject.checkpoints:
        groups.setdefault(checkpoint.lines, []).append(checkpoint)
    mistaken = set()
    for finding, checkpoints in _unknown_names(subject, graph):
        mistaken.update(checkpoint.lines for checkpoint in checkpoints)
        yield finding
    for lines, group in groups.items():
        first = group[0]
        if "save_anything_except_these_names" in jax_internals.policy_name(first.policy):
            text = (
                f"The policy of the checkpoint {_on(first.source)}, save_anything_except_these_names, ignores the "
                "names that it is given and saves everything. Use save_any_names_but_these, or write a policy."
            )
            yield LintFinding("ignored names", text, first.source)
        elif first.outer is None and lines not in mistaken:
            yield from _saving_nothing(subject, graph, group)
        if not any(jax_internals.prevents_cse(c.eqn) or c.in_a_loop for c in group):
            text = (
                f"The checkpoint {_on(first.source)} has prevent_cse=False and stands in no scan. Under jax.jit "
                "the compiler may take what it computes again for what was computed before, and keep that. Leave "
                "prevent_cse out."
            )
            yield LintFinding("undone", text, first.source)
        if first.outer is not None:
            yield from _nested(subject, group)
    if subject.checkpoints:
        yield from whole_nets(subject.passes, graph.passes, lambda: subject.without(subject.checkpoints))


def _on(source: Source | None) -> str:
    """Where a checkpoint is. What the caller wrapped has no line of its own."""
    return f"on {source.where}" if source else "around all of it"


def _unknown_names(subject: Subject, graph: RecomputeGraph) -> Iterator[tuple[LintFinding, list[Checkpoint]]]:
    """Names that policies ask for in vain; with each, the checkpoints whose policy finds none of its names."""
    named = {name for eqn, _ in everything(subject.jaxpr) if (name := jax_internals.checkpoint_name(eqn)) is not None}
    in_rules = {node.name for node in graph.nodes} - named
    by_names: dict[frozenset, list[Checkpoint]] = {}
    for checkpoint in subject.checkpoints:
        if wanted := frozenset(jax_internals.names_in_policy(checkpoint.policy)):
            by_names.setdefault(wanted, []).append(checkpoint)
    for wanted, group in by_names.items():
        here = {
            name for c in group for eqn in c.equations() if (name := jax_internals.checkpoint_name(eqn)) is not None
        }
        unknown = sorted(wanted - here - in_rules, key=repr)
        policy, line = jax_internals.policy_name(group[0].policy), _on(group[0].source)
        for name in unknown:
            text = (
                f"{policy}, the policy of the checkpoint {line}, is given {name!r}, and no value in it has that name. "
            )
            if name in named:
                text += "A value outside it has: put the checkpoint around that too, or take the name away."
            elif near := _nearest(name, here):
                text += f"Did you mean {near!r}?"
            elif here:
                text += f"The names there are {', '.join(sorted(map(repr, here)))}."
            else:
                text += "Nothing there has one: give it with jax.ad_checkpoint.checkpoint_name."
            yield LintFinding("unknown name", text, group[0].source), group if len(unknown) == len(wanted) else []


def _nearest(name, names: Collection[str]) -> str | None:
    lower = {known.lower(): known for known in sorted(names)}
    found = difflib.get_close_matches(str(name).lower(), lower, 1)
    return lower[found[0]] if found else None


def _saving_nothing(subject: Subject, graph: RecomputeGraph, group: list[Checkpoint]) -> Iterator[LintFinding]:
    first = group[0]
    if first.policy in (None, jax.checkpoint_policies.nothing_saveable):
        return
    kept = subject.passes.bytes_by_kind().get("computed", 0)
    if kept != graph.passes.bytes_by_kind().get("computed", 0):
        here = {id(checkpoint.eqn) for checkpoint in group}

        def change(eqn, old):
            return [jax_internals.given_policy(eqn, nothing) if id(old) in here else eqn]

        if kept != subject.trace(subject.changed(change)).bytes_by_kind().get("computed", 0):
            return
    policy = jax_internals.policy_name(first.policy)
    reason = _why_nothing(first, policy)
    text = f"{policy}, the policy of the checkpoint {_on(first.source)}, saves nothing here: {reason}"
    yield LintFinding("saves nothing", text, first.source)


def _why_nothing(checkpoint: Checkpoint, policy: str) -> str:
    products = [eqn for eqn in checkpoint.equations() if eqn.primitive.name in PRODUCTS]
    allowed = [eqn for eqn in checkpoint.equations() if _allows(checkpoint.policy, eqn)]
    if allowed:
        operations = ", ".join(
            dict.fromkeys(jax_internals.checkpoint_name(eqn) or eqn.primitive.name for eqn in allowed)
        )
        return (
            f"it allows {operations}, and the backward pass needs none of their results. Leave the policy out, or save "
            "what goes into a product or a nonlinearity."
        )
    if "dot" in policy and not products:
        return "there is no matrix product in it. Name what is worth keeping, and save it by name."
    if "no_batch_dims" in policy:
        return (
            f"every product in it, {_products(products)}, has batch dimensions, as vmap over the weights gives them. "
            "Use dots_saveable, or name the products."
        )
    if "name" in policy:
        return "no value in it has a name that it saves. Give one with jax.ad_checkpoint.checkpoint_name."
    return "it allows the result of no operation. Leave it out, or print what it is called with."


def _products(eqns: list[JaxprEqn]) -> str:
    lines = list(dict.fromkeys(where(source_of(eqn, ())) for eqn in eqns))
    return f"on {', '.join(lines[:3])}" + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")


def _allows(policy: Callable, eqn: JaxprEqn) -> bool:
    try:
        answer = policy(eqn.primitive, *(v.aval for v in eqn.invars), **eqn.params)
    except Exception:  # it knows more than is to be had here
        return False
    return answer if isinstance(answer, bool) else answer is not Recompute


def _nested(subject: Subject, group: list[Checkpoint]) -> Iterator[LintFinding]:
    first = group[0]
    line, outer = _on(first.source), _on(first.outer.source)
    outer = f"another one {outer}" if line == outer else f"the one {outer}"
    now, without = subject.passes, subject.without(group)
    peaks = [live_bytes(passes).peak_bytes for passes in (now, without)]
    more = _total(now) - _total(without)
    if peaks[1] <= peaks[0] and more >= 0:
        cost = f", and {amount_text(more)} more is computed" if more else ", and as much is computed"
        text = (
            f"The checkpoint {line} stands in {outer} and has no effect: what that one does not keep, it cannot. "
            f"The peak is {bytes_text(peaks[0])} with it and {bytes_text(peaks[1])} without{cost}. Take it away."
        )
        yield LintFinding("nested", text, first.source)
    elif first.policy not in (None, jax.checkpoint_policies.nothing_saveable):
        kept = now.bytes_by_kind().get("computed", 0)
        outer_lines = [first.lines[i:] for i in range(1, len(first.lines))]
        alone = subject.without([c for c in subject.checkpoints if c.lines in outer_lines])
        wanted = alone.bytes_by_kind().get("computed", 0)
        if wanted > kept:
            text = (
                f"The checkpoint {line} stands in {outer}, whose policy decides what is kept for the backward pass: "
                f"{bytes_text(kept)}, where it would be {bytes_text(wanted)} without that one. Give the policy to the "
                "outer checkpoint, or take that away."
            )
            yield LintFinding("overridden", text, first.source)


def _total(passes: Passes) -> int:
    return passes.cost.flops + passes.cost.transcendentals


def whole_nets(passes: Passes, nothing_saved: Passes, plain: Callable[[], Passes]) -> Iterator[LintFinding]:
    """Checkpoints around several like layers, which do not lower the peak.

    Args:
      passes: the trace that is judged.
      nothing_saved: the same with checkpoints that save nothing.
      plain: gives the trace without any checkpoint; asked only where there are like layers.
    """
    found = {Source.of(checkpoint.source_info): about for checkpoint, *about in _layers_at_once(nothing_saved)}
    if not found:
        return
    peak, without = live_bytes(passes).peak_bytes, live_bytes(plain()).peak_bytes
    if peak < 0.9 * without:
        return
    for source, (layers, operation, scanned) in found.items():
        text = (
            f"The checkpoint {_on(source)} has {layers} like layers in it, those of {where(operation.source)}. The "
            f"backward pass computes all of them again at once, so the peak is {bytes_text(peak)}, and "
            f"{bytes_text(without)} without a checkpoint. Put one around "
            f"{'the body of the scan' if scanned else 'each layer'} instead."
        )
        yield LintFinding("whole net", text, source or operation.source)


def _layers_at_once(passes: Passes) -> Iterator[tuple[JaxprEqn, int, Equation, bool]]:
    """Checkpoints that compute several like layers again at once; how many, an operation of theirs, and if in a scan.

    Layers are like if the same place in the code multiplies arrays of the same types. One follows on the other, or they
    are a scan's.
    """
    found: dict[int, tuple[JaxprEqn, dict]] = {}
    nested: set[int] = set()

    def visit(program: Program, loops: tuple[Equation, ...]) -> None:
        for equation in program.equations:
            for body in equation.bodies:
                visit(body, (*loops, equation))
            *inner, checkpoint = [eqn for eqn in equation.calls if jax_internals.is_checkpoint(eqn)] or [None]
            if equation.role != roles.RECOMPUTED or checkpoint is None or equation.bodies:
                continue
            if inner:
                nested.add(id(checkpoint))
            around = [loop.length for loop in loops if any(eqn is checkpoint for eqn in loop.calls)]
            types = tuple(map(type_text, (*equation.inputs, *equation.outputs)))
            key = id(program), source_info_util.summarize(equation.eqn.source_info), equation.primitive, types
            _, groups = found.setdefault(id(checkpoint), (checkpoint, {}))
            groups.setdefault(key, (program, math.prod(around), []))[2].append(equation)

    visit(passes.backward, ())
    for checkpoint, groups in found.values():
        if id(checkpoint) in nested:
            continue
        products = [group for key, group in groups.items() if key[2] in PRODUCTS]
        layers, operation, scanned = _median(
            (times * (_chain(program, equations) if len(equations) >= _SEVERAL else 1), equations[0], times > 1)
            for program, times, equations in products or groups.values()
        )
        if layers >= _SEVERAL:
            yield checkpoint, layers, operation, scanned


def _median(counted: Iterable[tuple]) -> tuple:
    ordered = sorted(counted, key=lambda pair: pair[0])
    return ordered[(len(ordered) - 1) // 2]


def _chain(program: Program, equations: list[Equation]) -> int:
    """How many of the equations follow one on the other."""
    counted = set(equations)
    depth: dict[Value, int] = {}
    for equation in program.equations:
        here = max((depth.get(v, 0) for v in equation.inputs), default=0) + (equation in counted)
        depth.update(dict.fromkeys(equation.outputs, here))
    return max(depth[v] for equation in equations for v in equation.outputs)

"""`lint(f, *args)`: names and checkpoints of a function that do nothing, why, and where names would do something."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Iterator

import jax
from jax.ad_checkpoint import Recompute
from jax.extend import source_info_util
from jax.extend.core import JaxprEqn
from rich.console import Console, ConsoleOptions, RenderResult

from rematscope import _jax, roles
from rematscope.checkpoints import nothing
from rematscope.display import Lines, Stack, TextTable, plain_text
from rematscope.liveness import live_bytes
from rematscope.names import PRODUCTS, Finding, Names, Place
from rematscope.program import Equation, Program, Value, type_text
from rematscope.recompute import RecomputeGraph
from rematscope.source import Source
from rematscope.subject import Checkpoint, Subject, everything, source_of, where
from rematscope.trace import Passes
from rematscope.units import amount_text, bytes_text

_SEVERAL = 3  # like layers that make a net
_SHOWN = 10  # places in the table


class Lint:
    """What is wrong with a function's names and checkpoints. Displays itself.

    Attributes:
      function: the name of the function.
      findings: what is wrong, in the order of the lines.
      places: values that deserve a name, those first that spare most per byte.
    """

    def __init__(self, function: str, findings: Iterable[Finding], places: Iterable[Place]):
        self.function = function
        self.findings = tuple(findings)
        self.places = tuple(places)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._view()

    def __repr__(self):
        return plain_text(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return self._view()._repr_mimebundle_(include, exclude)

    def _view(self) -> Stack:
        views = []
        if self.findings:
            alike: dict[tuple, list[Finding]] = {}
            for found in self.findings:
                alike.setdefault((found.kind, found.source), []).append(found)
            rows = [["about", "finding"], *([kind, _folded(group)] for (kind, _), group in alike.items())]
            count = len(self.findings)
            views.append(TextTable(rows, f"{self.function}: {count} finding{'s' * (count > 1)}"))
        else:
            views.append(Lines([f"{self.function}: no findings"]))
        if self.places and (not self.findings or any(found.name for found in self.findings)):
            views.append(self._table_of_places())
        return Stack(*views)

    def _table_of_places(self) -> TextTable:
        rows = [["value", "type", "bytes", "spares", "line"]]
        for place in self.places[:_SHOWN]:
            amounts = bytes_text(place.nbytes), amount_text(place.spares)
            rows.append([place.what, place.type, *amounts, str(place.source or "")])
        footer = "values that deserve a name, and what each spares by itself; first what spares most per byte"
        if len(self.places) > _SHOWN:
            footer += f"; {_SHOWN} of {len(self.places)}, all are in .places"
        return TextTable(rows, footer, ("bytes", "spares"))


def _folded(alike: list[Finding]) -> str:
    """The first of several findings about one line, and the names that the others are about."""
    names = [repr(found.name) for found in alike[1:]]
    if not alike[0].name or not names:
        return " ".join(found.text for found in alike)
    more = f" and {len(names) - 3} more, all in .findings" if len(names) > 3 else ""
    return f"{alike[0].text} So with {', '.join(names[:3])}{more}."


def lint(f: Callable, *args, **kwargs) -> Lint:
    """Looks for names that cannot help, policies that save nothing and checkpoints without effect in `f`.

    What it says comes from traces of `f` with a name or a checkpoint and without it. A name is in the wrong place if,
    beside all other names, it spares less than a tenth of what computing its value takes. It is JAX's default
    rematerialization that is looked at, whatever `JAX_REMAT3` says.

    Args:
      f: a function that is differentiable in reverse mode. It is not run. If it has no checkpoint, its names are judged
        as under one around all of it.
      *args, **kwargs: its arguments, as for `trace`.

    Returns:
      The findings, and the places where names would help.

    Raises:
      TraceError: as `trace` does.
      PlanError: if `f` takes the gradient of a function that has a checkpoint.
    """
    __tracebackhide__ = True
    with _jax.default_remat():
        subject = Subject(f, args, kwargs)
        names = Names(subject)
        findings = [*_checkpoint_findings(subject, names.graph), *names.findings()]
    by_line = sorted(findings, key=lambda found: (found.source.place, found.source.line) if found.source else ("", 0))
    return Lint(subject.function, dict.fromkeys(by_line), names.places)


def no_names(f: Callable, *args, **kwargs) -> str:
    """Why there is nothing to choose in a function, and what to name instead."""
    found = lint(f, *args, **kwargs)
    about_names = [finding.text for finding in found.findings if finding.name]
    reasons = " ".join(about_names[:3]) + (
        f" (lint finds {len(about_names) - 3} more.)" if len(about_names) > 3 else ""
    )
    text = f"{found.function} gives no value a name that the backward pass could use. {reasons}".rstrip()
    if not found.places:
        return f"{text} No other value would spare anything."
    places = "; ".join(
        f"{place}, {bytes_text(place.nbytes)}, spares {amount_text(place.spares)} operations"
        for place in found.places[:3]
    )
    return (
        f'{text} Name a value with jax.ad_checkpoint.checkpoint_name, h = checkpoint_name(h, "h"). The best places: '
        f"{places}."
    )


# Checkpoints and their policies


def _checkpoint_findings(subject: Subject, graph: RecomputeGraph) -> Iterator[Finding]:
    groups: dict[tuple, list[Checkpoint]] = {}
    for checkpoint in subject.checkpoints:
        groups.setdefault(checkpoint.lines, []).append(checkpoint)
    mistaken = set()
    for finding, checkpoints in _unknown_names(subject, graph):
        mistaken.update(checkpoint.lines for checkpoint in checkpoints)
        yield finding
    for lines, group in groups.items():
        first = group[0]
        if "save_anything_except_these_names" in _jax.policy_name(first.policy):
            text = (
                f"The policy of the checkpoint {_on(first.source)}, save_anything_except_these_names, ignores the "
                "names that it is given and saves everything. Use save_any_names_but_these, or write a policy."
            )
            yield Finding("ignored names", text, first.source)
        elif first.outer is None and lines not in mistaken:
            yield from _saving_nothing(subject, graph, group)
        if not any(_jax.prevents_cse(c.eqn) or c.in_a_loop for c in group):
            text = (
                f"The checkpoint {_on(first.source)} has prevent_cse=False and stands in no scan. Under jax.jit "
                "the compiler may take what it computes again for what was computed before, and keep that. Leave "
                "prevent_cse out."
            )
            yield Finding("undone", text, first.source)
        if first.outer is not None:
            yield from _nested(subject, group)
    if subject.checkpoints:
        yield from whole_nets(subject.passes, graph.passes, lambda: subject.without(subject.checkpoints))


def _on(source: Source | None) -> str:
    """Where a checkpoint is. What the caller wrapped has no line of its own."""
    return f"on {source.where}" if source else "around all of it"


def _unknown_names(subject: Subject, graph: RecomputeGraph) -> Iterator[tuple[Finding, list[Checkpoint]]]:
    """Names that policies ask for in vain; with each, the checkpoints whose policy finds none of its names."""
    named = {name for eqn, _ in everything(subject.jaxpr) if (name := _jax.checkpoint_name(eqn)) is not None}
    in_rules = {node.name for node in graph.nodes} - named
    by_names: dict[frozenset, list[Checkpoint]] = {}
    for checkpoint in subject.checkpoints:
        if wanted := frozenset(_jax.names_in_policy(checkpoint.policy)):
            by_names.setdefault(wanted, []).append(checkpoint)
    for wanted, group in by_names.items():
        here = {name for c in group for eqn in c.equations() if (name := _jax.checkpoint_name(eqn)) is not None}
        unknown = sorted(wanted - here - in_rules, key=repr)
        policy, line = _jax.policy_name(group[0].policy), _on(group[0].source)
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
            yield Finding("unknown name", text, group[0].source), group if len(unknown) == len(wanted) else []


def _nearest(name, names: Collection[str]) -> str | None:
    lower = {known.lower(): known for known in sorted(names)}
    found = difflib.get_close_matches(str(name).lower(), lower, 1)
    return lower[found[0]] if found else None


def _saving_nothing(subject: Subject, graph: RecomputeGraph, group: list[Checkpoint]) -> Iterator[Finding]:
    first = group[0]
    if first.policy in (None, jax.checkpoint_policies.nothing_saveable):
        return
    kept = subject.passes.bytes_by_kind().get("computed", 0)
    if kept != graph.passes.bytes_by_kind().get("computed", 0):
        here = {id(checkpoint.eqn) for checkpoint in group}

        def change(eqn, old):
            return [_jax.given_policy(eqn, nothing) if id(old) in here else eqn]

        if kept != subject.trace(subject.changed(change)).bytes_by_kind().get("computed", 0):
            return
    policy = _jax.policy_name(first.policy)
    reason = _why_nothing(first, policy)
    text = f"{policy}, the policy of the checkpoint {_on(first.source)}, saves nothing here: {reason}"
    yield Finding("saves nothing", text, first.source)


def _why_nothing(checkpoint: Checkpoint, policy: str) -> str:
    products = [eqn for eqn in checkpoint.equations() if eqn.primitive.name in PRODUCTS]
    allowed = [eqn for eqn in checkpoint.equations() if _allows(checkpoint.policy, eqn)]
    if allowed:
        operations = ", ".join(dict.fromkeys(_jax.checkpoint_name(eqn) or eqn.primitive.name for eqn in allowed))
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


def _nested(subject: Subject, group: list[Checkpoint]) -> Iterator[Finding]:
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
        yield Finding("nested", text, first.source)
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
            yield Finding("overridden", text, first.source)


def _total(passes: Passes) -> int:
    return passes.cost.flops + passes.cost.transcendentals


def whole_nets(passes: Passes, nothing_saved: Passes, plain: Callable[[], Passes]) -> Iterator[Finding]:
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
        yield Finding("whole net", text, source or operation.source)


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
            *inner, checkpoint = [eqn for eqn in equation.calls if _jax.is_checkpoint(eqn)] or [None]
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

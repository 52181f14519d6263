"""The rules about names: which names avoid no recompute, why, and what to name instead."""

from collections.abc import Iterator

from rematscope import jax_compat
from rematscope.choices.recompute_graph import Node
from rematscope.ir import roles
from rematscope.ir.attention_costs import FORWARD_KERNELS, SAVED_BY_A_RULE
from rematscope.ir.program import Equation
from rematscope.ir.source import Source
from rematscope.linting.dataflow import OWN_RESULT
from rematscope.linting.finding import LintFinding, LintKind
from rematscope.linting.linted_function import line_text, source_of, switch_text
from rematscope.linting.names import NameAt, Names, name_at
from rematscope.render.units import amount_text, bytes_text, first_of


def name_findings(names: Names) -> Iterator[LintFinding]:
    """Yield a finding for each name that does not help, in program order."""
    sources: dict[NameAt, Source | None] = {}
    for eqn, around in jax_compat.walk_equations(names.linted.jaxpr):
        if (name := jax_compat.checkpoint_name(eqn)) is not None:
            source = source_of(eqn, around)
            sources.setdefault(name_at(name, source), source)
    effective = {at.name for at in names.helping}
    for at, source in sources.items():
        if at not in names.helping:
            kind, text = _find_fault(names, at)
            if kind is LintKind.CUSTOM_RULE and at.name in effective:
                continue  # the forward rule has the same name, as in JAX's splash attention
            yield LintFinding(kind, f"{at.name!r} on {line_text(source)} {text}", source, at.name)


def _find_fault(names: Names, at: NameAt) -> tuple[LintKind, str]:
    """Return why a name does not help, and what to do."""
    if not (equations := names.equations.get(at)):
        return LintKind.DISCARDED, (
            "has no effect, because the result of checkpoint_name is not used. Use it in what follows: h = "
            f"checkpoint_name(h, {at.name!r})."
        )
    calls = equations[0].calls
    if any(map(jax_compat.is_custom_rule, calls)):
        switch = switch_text() if names.linted.remat3 else ""
        return LintKind.CUSTOM_RULE, (
            "is inside a function with its own derivative rule, and the backward pass uses only that rule. Put "
            f"the name into the rule's forward function{switch}, or put it outside of the function."
        )
    if names.linted.checkpoints and not any(map(jax_compat.is_checkpoint, calls)):
        return LintKind.OUTSIDE, ("is not inside a checkpoint, so no policy ever sees it. Put a checkpoint around it.")
    if at.name in names.graph.barred and at not in names.nodes:
        return LintKind.BARRED, f"{names.graph.barred[at.name]}. Name a value outside."
    if (given := names.values.given(equations[0])) is not None:
        return LintKind.ARGUMENT, (
            f"names {given}, which is saved anyway; saving the named copy takes memory twice. Remove the name."
        )
    if at not in names.nodes:
        return LintKind.NOT_NEEDED, f"{_not_needed(names, equations)} {_suggest_place(names, equations)}"
    return _explain_idle_name(names, at)


def _not_needed(names: Names, equations: list[Equation]) -> str:
    uses = names.values.uses(equations)
    if not uses:
        return "is not needed by the backward pass: the value is only returned."
    return f"is not needed by the backward pass: the derivative of {_list_operations(uses)} does not contain its value."


def _explain_idle_name(names: Names, at: NameAt) -> tuple[LintKind, str]:
    """Return why a name that the backward pass reaches avoids so little recompute."""
    equations = names.equations[at]
    most = max(names.savings[at], key=lambda saving: saving.spared)
    if not most.ends:
        return LintKind.FREE, "avoids no recompute: the value is computed by moving data only. Remove the name."
    total = names.saving_of(names.nodes[at])
    part = "no recompute"
    if total.spared:
        part = f"only {amount_text(total.spared)} of {amount_text(total.spared + total.again)} recomputed operations"
    nbytes = sum(node.nbytes for node in names.nodes[at])
    saving = f"takes {bytes_text(nbytes)} but avoids {part}"
    costs = {node.equation: node.cost for node in most.ends if node.equation is not None}
    last = max(costs, key=lambda equation: (costs[equation], equation.primitive in OWN_RESULT))
    made = f"{last.primitive} on {line_text(last.source)}"
    if last.primitive in OWN_RESULT:
        why = f"the derivative of {made} uses its own result, which is computed before the name"
        return LintKind.OWN_RESULT, f"{saving}: {why}. {_suggest_place(names, equations, total.spared, nbytes)}"
    if uses := names.values.unnamed_uses(equations):
        why = f"{_list_operations(uses)} reads the same value without the name"
        return LintKind.USED_UNNAMED, f"{saving}: {why}. Use the named value there."
    if last.primitive in FORWARD_KERNELS:
        why = (
            f"{made} is recomputed anyway, because the backward kernel reads its output and its log-sum-exp inside of "
            "its derivative rule, which no name outside of the rule reaches"
        )
        instead = f"Save both with a policy of your own that returns True for the primitive {last.primitive!r}."
        if names.linted.remat3:
            instead = f"To save both, {SAVED_BY_A_RULE}"
        return LintKind.TOO_LATE, f"{saving}: {why}. {instead}"
    why = f"{made} is recomputed anyway, because the derivative on {_costliest_reader(names, most.ends)} needs it"
    return LintKind.TOO_LATE, f"{saving}: {why}. {_suggest_place(names, equations, total.spared, nbytes)}"


def _costliest_reader(names: Names, nodes: list[Node]) -> str:
    """Return the line whose derivative needs the costliest of some recomputed values."""
    reached = {max(nodes, key=lambda node: node.cost)}
    for node in names.graph.nodes:
        if node in names.needed and node.equation and not reached.isdisjoint(node.reads):
            if node.equation.role != roles.RECOMPUTED:
                return line_text(node.equation.source)
            reached.add(node)
    return line_text(None)


def _suggest_place(names: Names, equations: list[Equation], spared: float = 0, nbytes: int = 1) -> str:
    """Return the next step for a name in the wrong place: the nearest place before it that avoids as much per byte.

    Args:
      spared, nbytes: the operations that the name avoids, and the bytes that it takes.
    """
    own = {names.values.origin(e.outputs[0]) for e in equations}
    for equation in names.values.before(equations):
        place = names.place_of.get(equation)
        if place is not None and equation not in own and place.avoided * nbytes >= spared * place.nbytes:
            return (
                f"Name {place} instead: it avoids {amount_text(place.avoided)} operations for "
                f"{bytes_text(place.nbytes)}."
            )
        if equation.primitive == "name":
            at = name_at(equation.params["name"], equation.source)
            if at in names.helping:
                return f"Remove it: {at.name!r}, from which it is computed, has a name that helps."
    return "No value before it avoids as much per byte." if spared else "Remove the name."


def _list_operations(equations: list[Equation]) -> str:
    """Return `add on model.py:7, mul on model.py:8 and 3 more`."""
    return first_of(f"{e.primitive} on {line_text(e.source)}" for e in equations)

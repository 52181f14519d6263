"""`lint(f, *args)`: names, policies and checkpoints that have no effect, and values that are worth naming."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.choices.build import operations_rerun, recompute_graph
from rematscope.ir.gc_pause import gc_paused
from rematscope.ir.source import Source
from rematscope.linting.checkpoint_rules import checkpoint_findings, policy_allows
from rematscope.linting.finding import LintFinding, LintKind, NameSuggestion
from rematscope.linting.linted_function import LintedFunction, on_line
from rematscope.linting.name_rules import name_findings
from rematscope.linting.names import names_of
from rematscope.linting.remat3_rules import lost_gradient_findings, remat3_findings
from rematscope.render.parts import Lines, Paragraph, Stack, TextTable
from rematscope.render.progress import progress_message
from rematscope.render.units import amount_text, amount_texts, bytes_text, counted
from rematscope.render.view import View
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.trace import Trace, trace

_SHOWN = 10  # places in the table


class Lint(View):
    """The problems that `lint` found in a function's names, policies and checkpoints.

    It is displayed as text in a terminal and as HTML in a notebook.

    Attributes:
      function: the name of the function.
      findings: the problems, in source order.
      places: the values that are worth naming, by decreasing recompute avoided per byte, except in functions that the
        function differentiates itself. Each passes the test that `lint` applies to names.
      uncounted: a clause that names the recomputed operations of unknown cost; "" if there are none.
      out_of_reach: the values that are worth saving but are intermediate values of library functions, where you cannot
        add a name. `NameSuggestion.alternative` gives the policy that saves each of them.
      remat3: whether `jax_remat3` was set and the function has a checkpoint; see `Trace.remat3`.
      note: a sentence if the function has names but no checkpoint whose policy saves one of them, so that none has an
        effect yet; else "".
    """

    def __init__(
        self,
        function: str,
        findings: Iterable[LintFinding],
        places: Iterable[NameSuggestion],
        uncounted: str = "",
        out_of_reach: Iterable[NameSuggestion] = (),
        remat3: bool = False,
        note: str = "",
    ):
        self.function = function
        self.findings = tuple(findings)
        self.places = tuple(places)
        self.uncounted = uncounted
        self.out_of_reach = tuple(out_of_reach)
        self.remat3 = remat3
        self.note = note

    def parts(self) -> Iterable[View]:
        views: list[View] = []
        function = f"{self.function} under jax_remat3" if self.remat3 else self.function
        if self.findings:
            alike: dict[tuple[LintKind, Source | None], list[LintFinding]] = {}
            for found in self.findings:
                alike.setdefault((found.kind, found.source), []).append(found)
            rows = [["About", "Finding"], *([kind, _fold_findings(group)] for (kind, _), group in alike.items())]
            views.append(TextTable(rows, f"{function}: {counted(len(self.findings), 'finding')}"))
        else:
            views.append(Lines([f"{function}: no findings"]))
        if self.note:
            views.append(Paragraph(self.note))
        if not self.findings or any(found.name for found in self.findings):
            what = "Values worth naming, by recompute (FLOPs and transcendentals) avoided per byte saved"
            inside = "Values inside a library, where you cannot add a name"
            views += _suggestion_table(self.places, what, "places") + _suggestion_table(
                self.out_of_reach, inside, "out_of_reach"
            )
        if self.uncounted:
            views.append(Lines([f"{self.uncounted}: the recompute that a name avoids there is not included"]))
        return [Stack(*views)]


def _suggestion_table(places: Sequence[NameSuggestion], what: str, attribute: str) -> list[View]:
    if not places:
        return []
    instead = ["Saved by"] * any(place.alternative for place in places)
    rows = [["Value", "Type", "Bytes", "Recompute avoided", "Line", *instead]]
    shown = places[:_SHOWN]
    sizes, avoided = [bytes_text(place.nbytes) for place in shown], amount_texts([place.avoided for place in shown])
    for place, *amounts in zip(shown, sizes, avoided, strict=True):
        line = "\n".join(filter(None, [place.module, str(place.source or "")]))
        kind = place.type if place.count == 1 else f"{place.count} × {place.type}"
        rows.append([place.value, kind, *amounts, line, *[place.alternative] * len(instead)])
    if len(places) > _SHOWN:
        what += f"; {_SHOWN} of {len(places)} are shown, .{attribute} has all"
    return [TextTable(rows, what, ("Bytes", "Recompute avoided"))]


def _fold_findings(alike: list[LintFinding]) -> str:
    """Return the first of several findings about one line, and the names in the others."""
    names = [repr(found.name) for found in alike[1:]]
    if not alike[0].name or not names:
        return " ".join(found.text for found in alike)
    more = f" and {len(names) - 3} more, all in .findings" if len(names) > 3 else ""
    return f"{alike[0].text} The same holds for {', '.join(names[:3])}{more}."


@with_own_options
def lint(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Lint:
    """Find checkpoint names, policies and checkpoints in `f` that have no effect.

    Findings come from traces of `f` with JAX's default rematerialization. `lint` reports a name if saving its value, in
    addition to all other names, avoids less than 10 % of the cost of computing this value and, per byte, less than 10 %
    of the costliest matmul that is recomputed anyway; `.places` has no such value.
    If `jax_remat3` is set, `lint` also reports names and policies that have less effect in that mode.

    Args:
      f: a function that is differentiable in reverse mode, or a training step, whose loss is then checked. It is
        traced, not run. If it has no checkpoint, `lint` judges its names as if one checkpoint were around the whole
        function.
      *args, **kwargs: the arguments of `f`, as for `trace`.

    Returns:
      The findings (`.findings`), and the values that are worth naming (`.places`).

    Raises:
      TraceError: as for `trace`.
      PlanError: if `f` differentiates a function that has a checkpoint, or if it has a callback that must not run
        twice.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import lint
      >>> found = lint(lambda x: checkpoint_name(x, "h") * 2.0, jnp.ones(4))
      >>> [(str(finding.kind), finding.name) for finding in found.findings]
      [('argument', 'h')]
    """
    __tracebackhide__ = True
    remat3 = jax_compat.remat3()
    with jax_compat.default_remat(), progress_message("checking names and checkpoints"), gc_paused():
        linted = LintedFunction(f, args, kwargs, remat3)
        names = names_of(linted)
        findings = [
            *_stateful_findings(linted.trace),
            *checkpoint_findings(linted, names.graph),
            *name_findings(names),
        ]
        if operations_rerun(names.graph.trace):  # a name that saves such a value avoids no recompute, but is needed
            findings = [found for found in findings if found.kind is not LintKind.FREE]
    if remat3:
        passes = trace(f, *args, **kwargs)
        if lost := lost_gradient_findings(LintedFunction(f, args, kwargs, remat3)):
            findings += lost  # no choice of names can be predicted
        else:
            findings += remat3_findings(linted, recompute_graph(f, *args, **kwargs), linted.trace, passes)
        remat3 = passes.remat3
    by_line = sorted(findings, key=_line_of)
    findings = list(dict.fromkeys(by_line))
    return Lint(
        linted.function,
        findings,
        names.places,
        names.graph.uncounted_text,
        names.out_of_reach,
        remat3,
        _unsaved_note(linted),
    )


def _unsaved_note(linted: LintedFunction) -> str:
    """Return that no policy saves any of the names, or "" if one does or there are no names."""
    named = {name for eqn, _ in jax_compat.walk_equations(linted.jaxpr) if (name := jax_compat.checkpoint_name(eqn))}
    for checkpoint in linted.checkpoints:
        policy = checkpoint.policy
        if policy and any(jax_compat.checkpoint_name(e) and policy_allows(policy, e) for e in checkpoint.equations()):
            return ""
    if not named:
        return ""
    if len(named) == 1:
        (name,) = named
        return (
            f"No checkpoint has a policy that saves the name {name!r}, so the name has no effect yet. lint checks it "
            "as if a policy saved it."
        )
    return (
        f"No checkpoint has a policy that saves one of the {len(named)} names, so they have no effect yet. lint checks "
        "them as if a policy saved all of them."
    )


def _stateful_findings(passes: Trace) -> Iterator[LintFinding]:
    for equation in operations_rerun(passes):
        text = (
            f"{equation.primitive} {on_line(equation.source)} gives a different result each time it runs, and a "
            "checkpoint runs it again in the backward pass: the gradient is wrong. Draw the numbers with jax.random "
            "and a key, compute them outside the checkpoint, or save them by name."
        )
        yield LintFinding(LintKind.DRAWN_AGAIN, text, equation.source)


def _line_of(found: LintFinding) -> tuple[str, int]:
    """Return the user's line of a finding, by which findings are sorted."""
    return (found.source.users.place, found.source.users.line) if found.source else ("", 0)


def no_names(f: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return why a function has no name to choose, and what to name."""
    found = lint(f, *args, **kwargs)
    about_names = [finding.text for finding in found.findings if finding.name]
    reasons = " ".join(about_names[:3]) + (
        f" (lint finds {len(about_names) - 3} more.)" if len(about_names) > 3 else ""
    )
    text = f"{found.function} names no value that the backward pass could use. {reasons}".rstrip()
    if not found.places and found.out_of_reach:
        inside = "; ".join(f"{place} with {place.alternative}" for place in found.out_of_reach[:3])
        return f"{text} The values worth saving are inside library calls, where you cannot add a name. Save {inside}."
    if not found.places:
        known = f" of known cost; {found.uncounted}" if found.uncounted else ""
        return f"{text} Saving other values would avoid no recompute{known}."
    places = "; ".join(
        f"{place}, {bytes_text(place.nbytes)}, avoids {amount_text(place.avoided)} operations"
        for place in found.places[:3]
    )
    return (
        f'{text} Name a value with jax.ad_checkpoint.checkpoint_name: h = checkpoint_name(h, "h"). The best '
        f"candidates: {places}."
    )

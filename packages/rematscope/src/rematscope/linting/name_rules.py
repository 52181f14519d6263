"""Which names of a function spare anything, why the others do not, and which values deserve one."""

import dataclasses
from collections.abc import Iterator

from jax.extend import source_info_util
from jax.extend.core import JaxprEqn

from rematscope.choices.build import graph_of
from rematscope.choices.recompute_graph import Node
from rematscope.ir import jax_internals, roles
from rematscope.ir.cost import cost_of
from rematscope.ir.inline import Inliner
from rematscope.ir.program import Equation, Value, type_text
from rematscope.linting.dataflow import OWN_RESULT, PRODUCTS, Values, upstream
from rematscope.linting.finding import LintFinding, Place
from rematscope.linting.subject import Subject, everything, source_of, where
from rematscope.render.units import amount_text, bytes_text
from rematscope.tracing.checkpoints import nothing, with_policy

# A name that spares less than this part of what computing its value takes is in the wrong place.
_WORTH_WHILE = 0.1


_PLACE = "rematscope: place "


class Names:
    """What the names of a function do.

    Attributes:
      graph: what its backward pass computes again, where all values that may deserve a name have one.
      places: values that do, those first that spare most per byte.
    """

    def __init__(self, subject: Subject):
        self._subject = subject
        inputs = [Value(v.aval) for v in jax_internals.body_of(subject.jaxpr)[0].invars]
        self._values = Values(Inliner().program(subject.jaxpr, inputs))
        candidates = self._find_candidates()
        by_eqn = {id(eqn): name for name, (_, eqns, _) in candidates.items() for eqn in eqns}

        def change(eqn, old):
            return jax_internals.with_name(eqn, by_eqn[id(old)]) if id(old) in by_eqn else [eqn]

        self.graph = graph_of(subject.trace(with_policy(subject.changed(change), nothing)))
        given = frozenset(self.graph.names) - candidates.keys()
        self._reached = self.graph.walk(frozenset())
        self._needed = self.graph.walk(given)
        self._nodes: dict[tuple[str, str], list[Node]] = {}
        for node in self.graph.nodes:
            if node.name in given and node in self._reached:
                self._nodes.setdefault((node.name, str(node.equation.source)), []).append(node)
        self._named: dict[tuple[str, str], list[Equation]] = {}
        for equation in self._values.equations:
            if equation.primitive == "name":
                self._named.setdefault((equation.params["name"], str(equation.source)), []).append(equation)
        self._helping = {key for key, nodes in self._nodes.items() if any(map(self._helps, nodes))}
        self._saved = {name for name, _ in self._helping}
        worth = self._worth(candidates)
        self._places = {equation: place for place, equations in worth for equation in equations}
        self.places = sorted((place for place, _ in worth), key=lambda p: p.spares / max(p.nbytes, 1), reverse=True)

    # Places

    def _find_candidates(self) -> dict[str, tuple[Place, list[JaxprEqn], list[Equation]]]:
        """A name for each place that may deserve one: the place, where a name would go in the jaxpr, what makes it."""
        values = self._values
        found: dict[Equation | None, tuple[str, Equation]] = {}
        for equation in values.equations:
            if equation.primitive in PRODUCTS:
                found[equation] = "the result of a matrix product", equation
                for value in equation.inputs:
                    found.setdefault(values.origin(value), ("what goes into a matrix product", equation))
            elif equation.primitive == "exp" and (value := values.softmax_input(equation)) is not None:
                found.setdefault(values.origin(value), ("what goes into a softmax", equation))
        if not found:
            costly = [e for e in values.equations if not e.bodies and (c := cost_of(e)).flops + c.transcendentals]
            found = {e: (f"the result of {e.primitive}", e) for e in costly}
        places: dict[tuple, tuple[Place, list, list]] = {}
        for equation, (what, reader) in found.items():
            if equation is None or (eqn := _nameable(equation, reader)) is None:
                continue
            place = Place(what, equation.source, type_text(equation.outputs[0]))
            alike = source_info_util.summarize(equation.eqn.source_info), *map(type_text, equation.inputs)
            _, eqns, equations = places.setdefault((place, equation.primitive, alike), (place, [], []))
            eqns.append(eqn)
            equations.append(equation)
        return {f"{_PLACE}{i}": place for i, place in enumerate(places.values())}

    def _worth(self, candidates) -> list[tuple[Place, list[Equation]]]:
        """The places that spare anything beside the names that help, and what computes them."""
        found = []
        nbytes, cost = self.graph.evaluate(self._saved)
        for name in self.graph.names:
            if name in candidates:
                place, _, equations = candidates[name]
                then = self.graph.evaluate({*self._saved, name})
                if then[1] < cost:
                    spares = cost - then[1]
                    found.append((dataclasses.replace(place, nbytes=then[0] - nbytes, spares=spares), equations))
        return found

    # What is wrong with names

    def findings(self) -> Iterator[LintFinding]:
        sources = {}
        for eqn, around in everything(self._subject.jaxpr):
            if (name := jax_internals.checkpoint_name(eqn)) is not None:
                source = source_of(eqn, around)
                sources.setdefault((name, str(source)), source)
        for key, source in sources.items():
            if key not in self._helping:
                name = key[0]
                kind, text = self._fault(key)
                yield LintFinding(kind, f"{name!r} on {where(source)} {text}", source, name)

    def _fault(self, key: tuple[str, str]) -> tuple[str, str]:
        """Why a name does not help, and what to do."""
        name, equations = key[0], self._named.get(key)
        if not equations:
            return "discarded", (
                "does nothing: nothing that is returned is computed from what checkpoint_name returned. Go on with "
                f"that: h = checkpoint_name(h, {name!r})."
            )
        calls = equations[0].calls
        if any(map(jax_internals.is_custom_rule, calls)):
            return "custom rule", (
                "stands in a function with a derivative rule of its own, and the backward pass follows the rule alone. "
                "Put the name into the rule's forward function, or outside."
            )
        if self._subject.checkpoints and not any(map(jax_internals.is_checkpoint, calls)):
            return "outside", "stands in no checkpoint, so no policy is asked about it. Put a checkpoint around it."
        if name in self.graph.barred and key not in self._nodes:
            return "barred", f"{self.graph.barred[name]}. Name a value outside."
        if (given := self._values.given(equations[0])) is not None:
            return "argument", f"is the name of {given}, which is kept anyway: saving it keeps it twice. Drop the name."
        if key not in self._nodes:
            return "not needed", f"{self._not_needed(equations)} {self._instead(equations)}"
        return self._idle(equations, self._nodes[key])

    def _not_needed(self, equations: list[Equation]) -> str:
        uses = self._values.uses(equations)
        if not uses:
            return "is not needed by the backward pass: it is returned, and nothing else is done with it."
        return f"is not needed by the backward pass: the derivative of {_listed(uses)} does not contain its value."

    def _idle(self, equations: list[Equation], nodes: list[Node]) -> tuple[str, str]:
        spared, again, ends = max(map(self._spared, nodes), key=lambda found: found[0])
        if not again:
            return "free", "costs nothing to compute again: only data is moved. Drop the name."
        part = amount_text(spared) if spared else "none"
        size = bytes_text(sum(node.nbytes for node in nodes))
        saving = f"spares {part} of the {amount_text(spared + again)} operations that computing it takes, for {size}"
        last = max(ends, key=lambda node: (node.cost, node.equation.primitive in OWN_RESULT)).equation
        made = f"{last.primitive} on {where(last.source)}"
        if last.primitive in OWN_RESULT:
            kind, why = "own result", f"the derivative of {made} uses its own result, the value before the name"
        elif uses := self._values.unnamed_uses(equations):
            return (
                "used unnamed",
                f"{saving}: {_listed(uses)} has the same value without the name. Give it the named one.",
            )
        else:
            kind, why = (
                "too late",
                f"{made} is computed again all the same: the derivative on {self._reader(ends)} needs it",
            )
        return kind, f"{saving}: {why}. {self._instead(equations)}"

    def _helps(self, node: Node) -> bool:
        spared, again, _ = self._spared(node)
        return spared > 0 and spared >= _WORTH_WHILE * (spared + again)

    def _spared(self, node: Node) -> tuple[int, int, list[Node]]:
        """What saving a named value spares, what its computation takes all the same, and where that part ends."""
        spared = upstream(node.reads, lambda read: read not in self._needed)
        ends = [read for here in [node, *spared] for read in here.reads if read in self._needed]
        again = set(
            upstream(ends, lambda read: not (read.name and (read.name, str(read.equation.source)) in self._nodes))
        )
        free = upstream(ends, lambda read: read in again and not read.cost)
        ends = [
            read for read in [*ends, *(read for here in free for read in here.reads)] if read in again and read.cost
        ]
        return sum(read.cost for read in spared), sum(read.cost for read in again), ends

    def _reader(self, nodes: list[Node]) -> str:
        """The line whose derivative needs the costliest of some values that are computed again."""
        reached = {max(nodes, key=lambda node: node.cost)}
        for node in self.graph.nodes:
            if node in self._needed and node.equation and not reached.isdisjoint(node.reads):
                if node.equation.role != roles.RECOMPUTED:
                    return where(node.equation.source)
                reached.add(node)
        return where(None)

    def _instead(self, equations: list[Equation]) -> str:
        """The next step, for a name in the wrong place: the nearest place before it that is worth one."""
        own = {self._values.origin(e.outputs[0]) for e in equations}
        for equation in self._values.before(equations):
            if equation in self._places and equation not in own:
                place = self._places[equation]
                return f"Name {place} instead: that spares {amount_text(place.spares)} for {bytes_text(place.nbytes)}."
            if equation.primitive == "name" and (equation.params["name"], str(equation.source)) in self._helping:
                return f"Drop it: {equation.params['name']!r}, from which it is computed, has a name that helps."
        return "Drop the name."


def _nameable(equation: Equation, reader: Equation) -> JaxprEqn | None:
    """Where in the jaxpr the result of an operation can be given a name; None if there is no such line."""
    rules = [eqn for eqn in equation.calls if jax_internals.is_custom_rule(eqn)]
    if not rules:
        return equation.eqn if len(equation.outputs) == len(equation.eqn.outvars) == 1 else None
    # Names in a custom rule do nothing: what it returns must be named outside.
    outer = rules[-1]
    return outer if len(outer.outvars) == 1 and not any(eqn is outer for eqn in reader.calls) else None


def _listed(equations: list[Equation]) -> str:
    """`add on model.py:7, mul on model.py:8 and 3 more`."""
    texts = list(dict.fromkeys(f"{e.primitive} on {where(e.source)}" for e in equations))
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")

"""What the names of a function spare, and what names at other places would."""

import dataclasses
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.choices.build import graph_of
from rematscope.choices.recompute_graph import Node, RecomputeGraph
from rematscope.ir.inline import Inliner
from rematscope.ir.program import Equation, Value
from rematscope.ir.source import Source, common_path
from rematscope.linting.dataflow import Values, upstream
from rematscope.linting.finding import NameSuggestion
from rematscope.linting.places import Candidate, find_candidates
from rematscope.linting.subject import Subject
from rematscope.tracing.checkpoints import nothing, with_policy

# A name that spares less than this part of what computing its value takes is in the wrong place.
_WORTH_WHILE = 0.1


class NameAt(NamedTuple):
    """A name on a line. All layers that the line is run for have the same one."""

    name: str
    line: str


def name_at(name: str, source: Source | None) -> NameAt:
    """The name on the line that `source` is."""
    return NameAt(name, str(source))


@dataclasses.dataclass(frozen=True)
class Saving:
    """What saving a named value spares, beside all other names.

    Attributes:
      spared: FLOPs and transcendentals that are not computed again if it is saved.
      again: those that computing it takes, and that are spent all the same.
      ends: the operations of `again` that are nearest to the name and cost anything.
      uncounted: whether what it spares includes an operation whose cost is not known.
    """

    spared: float
    again: float
    ends: list[Node]
    uncounted: bool

    @property
    def worth_while(self) -> bool:
        """Whether it is a good part of what computing the value takes."""
        return self.uncounted or (self.spared > 0 and self.spared >= _WORTH_WHILE * (self.spared + self.again))


@dataclasses.dataclass(frozen=True, eq=False)
class Names:
    """The names of a function, and the values that may deserve one.

    Attributes:
      subject: the function.
      values: where its values come from and what reads them.
      graph: what its backward pass computes again, where all values that may deserve a name have one.
      needed: the nodes that are read or computed again even if all of the function's own names are saved.
      candidates: the values that may deserve a name, by the names that they have in `graph`.
      equations: what gives each name on each line.
      nodes: the same in the backward pass, where that computes it again.
    """

    subject: Subject
    values: Values
    graph: RecomputeGraph
    needed: Collection[Node]
    candidates: dict[str, Candidate]
    equations: dict[NameAt, list[Equation]]
    nodes: dict[NameAt, list[Node]]

    @cached_property
    def savings(self) -> dict[NameAt, list[Saving]]:
        """What each name spares, in each layer that its line is run for."""
        return {at: [self._saving_of(node) for node in nodes] for at, nodes in self.nodes.items()}

    @cached_property
    def helping(self) -> set[NameAt]:
        """The names that are in the right place."""
        return {at for at, savings in self.savings.items() if any(saving.worth_while for saving in savings)}

    @cached_property
    def places(self) -> list[NameSuggestion]:
        """The places that spare anything beside the names that help, those first that spare most per byte."""
        return [place for place in self._sorted_suggestions if not place.alternative]

    @cached_property
    def out_of_reach(self) -> list[NameSuggestion]:
        """The same where no name can be put."""
        return [place for place in self._sorted_suggestions if place.alternative]

    @cached_property
    def _sorted_suggestions(self) -> list[NameSuggestion]:
        return sorted(
            self._worthy_suggestions.values(), key=lambda place: place.avoided / max(place.nbytes, 1), reverse=True
        )

    @cached_property
    def place_of(self) -> dict[Equation, NameSuggestion]:
        """What computes the values of these places."""
        reached = [(name, place) for name, place in self._worthy_suggestions.items() if not place.alternative]
        return {e: place for name, place in reached for e in self.candidates[name].equations}

    @cached_property
    def _worthy_suggestions(self) -> dict[str, NameSuggestion]:
        saved = {at.name for at in self.helping}
        nbytes, cost = self.graph.evaluate(saved)
        found = {}
        for name in self.graph.names:
            if name in self.candidates:
                more, less = self.graph.evaluate({*saved, name})
                if less < cost:
                    candidate = self.candidates[name]
                    module = common_path(equation.module for equation in candidate.equations)
                    found[name] = dataclasses.replace(
                        candidate.place, nbytes=more - nbytes, avoided=int(cost - less), module=module
                    )
        return found

    def _saving_of(self, node: Node) -> Saving:
        spared = upstream(node.reads, lambda read: read not in self.needed)
        ends = [read for here in [node, *spared] for read in here.reads if read in self.needed]
        again = set(upstream(ends, lambda read: not self._is_named(read)))
        free = upstream(ends, lambda read: read in again and read.has_zero_cost)
        ends += [read for here in free for read in here.reads]
        ends = [read for read in ends if read in again and not read.has_zero_cost]
        uncounted = any(read.uncounted for read in spared)
        return Saving(sum(read.cost for read in spared), sum(read.cost for read in again), ends, uncounted)

    def _is_named(self, node: Node) -> bool:
        """Whether it has a name of the function's own that the backward pass comes by."""
        return node.name is not None and _name_at(node) in self.nodes


def names_of(subject: Subject) -> Names:
    """Looks at the names of a function, by a trace in which every value that may deserve one has a name too."""
    inputs = [Value(v.aval) for v in jax_compat.body_of(subject.jaxpr)[0].invars]
    values = Values(Inliner().program(subject.jaxpr, inputs))
    candidates = find_candidates(values)
    name_of = {id(eqn): name for name, candidate in candidates.items() for eqn in candidate.eqns}

    def change(eqn: JaxprEqn, old: JaxprEqn) -> Sequence[JaxprEqn]:
        return jax_compat.with_name(eqn, name_of[id(old)]) if id(old) in name_of else [eqn]

    graph = graph_of(subject.trace_of(with_policy(subject.changed(change), nothing)))
    given = frozenset(graph.names) - candidates.keys()
    reached = graph.walk(frozenset())
    nodes: dict[NameAt, list[Node]] = {}
    for node in graph.nodes:
        if node.name in given and node in reached:
            nodes.setdefault(_name_at(node), []).append(node)
    equations: dict[NameAt, list[Equation]] = {}
    for equation in values.equations:
        if equation.primitive == "name":
            equations.setdefault(name_at(equation.params["name"], equation.source), []).append(equation)
    return Names(subject, values, graph, graph.walk(given), candidates, equations, nodes)


def _name_at(node: Node) -> NameAt:
    """The name that a node gives, and its line."""
    assert node.name is not None and node.equation is not None  # as every node with a name has
    return name_at(node.name, node.equation.source)

"""The recompute that the names of a function avoid, and that names at other places would avoid."""

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import NamedTuple

from jax.extend.core import JaxprEqn

from rematscope import jax_compat
from rematscope.choices.build import graph_of
from rematscope.choices.recompute_graph import Node, RecomputeGraph
from rematscope.ir.inline import Inliner
from rematscope.ir.primitives import MATMULS
from rematscope.ir.program import Equation
from rematscope.ir.source import Source, common_path
from rematscope.linting.dataflow import Values, upstream
from rematscope.linting.finding import NameSuggestion
from rematscope.linting.linted_function import LintedFunction
from rematscope.linting.places import Candidate, find_candidates
from rematscope.tracing.checkpoints import nothing, with_policy

# A name is in the wrong place, and no such place is suggested, if it avoids less than this share of the cost of
# computing its value and, per byte, less than this share of the costliest matmul that is recomputed anyway. The second
# condition is for values deep in a model with one checkpoint around it. All earlier layers are recomputed anyway, so
# the first share is small even for a value whose name helps as much as any other.
_WORTH_WHILE = 0.1


class NameAt(NamedTuple):
    """A name on a line, the same for all layers that run the line."""

    name: str
    line: str


def name_at(name: str, source: Source | None) -> NameAt:
    """Return the name on the line `source`."""
    return NameAt(name, str(source))


@dataclasses.dataclass(frozen=True)
class Saving:
    """The recompute that saving a named value avoids, in addition to all other names.

    Attributes:
      spared: the FLOPs and transcendentals that are not recomputed if it is saved.
      again: the FLOPs and transcendentals of computing it that are recomputed anyway.
      ends: the operations of `again` with a cost that are nearest to the name.
      uncounted: whether the avoided recompute includes an operation of unknown cost.
      nbytes: the bytes of the value.
      costliest: the highest cost per byte of result of the matmuls of `again`; infinity if there is none.
    """

    spared: float
    again: float
    ends: list[Node]
    uncounted: bool
    nbytes: int
    costliest: float

    @property
    def worth_while(self) -> bool:
        """Whether saving the value avoids enough of the cost of computing it, or enough per byte."""
        least = _WORTH_WHILE * min(self.spared + self.again, self.nbytes * self.costliest)
        return self.uncounted or (self.spared > 0 and self.spared >= least)


@dataclasses.dataclass(frozen=True, eq=False)
class Names:
    """The names of a function, and the values that may be worth naming.

    Attributes:
      values: the data flow of the function.
      graph: the recompute graph of the function with a name on each value that may be worth naming.
      needed: the nodes that are read or recomputed even if all of the function's own names are saved.
      candidates: the values that may be worth naming, by their names in `graph`.
      equations: the equations that give each name on each line.
      nodes: the nodes of the backward pass that recompute them.
    """

    linted: LintedFunction
    values: Values
    graph: RecomputeGraph
    needed: Collection[Node]
    candidates: dict[str, Candidate]
    equations: dict[NameAt, list[Equation]]
    nodes: dict[NameAt, list[Node]]

    @cached_property
    def savings(self) -> dict[NameAt, list[Saving]]:
        """The recompute that each name avoids, in each layer that runs its line."""
        return {at: [self.saving_of([node]) for node in nodes] for at, nodes in self.nodes.items()}

    @cached_property
    def helping(self) -> set[NameAt]:
        """The names that avoid enough recompute."""
        return {at for at, savings in self.savings.items() if any(saving.worth_while for saving in savings)}

    @cached_property
    def places(self) -> list[NameSuggestion]:
        """The places that avoid enough recompute in addition to the helpful names, by recompute avoided per byte."""
        return [place for place in self._sorted_suggestions if not place.alternative]

    @cached_property
    def out_of_reach(self) -> list[NameSuggestion]:
        """The same places for values that cannot be named."""
        return [place for place in self._sorted_suggestions if place.alternative]

    @cached_property
    def _sorted_suggestions(self) -> list[NameSuggestion]:
        return sorted(
            self._worthy_suggestions.values(), key=lambda place: place.avoided / max(place.nbytes, 1), reverse=True
        )

    @cached_property
    def place_of(self) -> dict[Equation, NameSuggestion]:
        """The place of each operation that computes the value of one."""
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
                if less < cost and self._is_worth_a_name(name, saved):
                    candidate = self.candidates[name]
                    module = common_path(equation.module for equation in candidate.equations)
                    size = max(1, candidate.equations[0].outputs[0].device_bytes)
                    found[name] = dataclasses.replace(
                        candidate.place,
                        nbytes=more - nbytes,
                        count=max(1, round((more - nbytes) / size)),
                        avoided=int(cost - less),
                        module=module,
                    )
        return found

    def _is_worth_a_name(self, candidate: str, saved: Collection[str]) -> bool:
        """Return whether a candidate avoids enough recompute in addition to some names, as `helping` requires."""
        names = frozenset({*saved, candidate})
        needed = self.graph.walk(names)
        nodes = (node for node in self.graph.nodes if node.name == candidate)
        return any(_saving_of_nodes([node], needed, lambda read: read.name in names).worth_while for node in nodes)

    def saving_of(self, nodes: Sequence[Node]) -> Saving:
        """Return the recompute that saving the values of some nodes avoids."""
        return _saving_of_nodes(nodes, self.needed, self._is_named)

    def _is_named(self, node: Node) -> bool:
        """Return whether a node has one of the function's own names, which the backward pass reaches."""
        return node.name is not None and _name_at(node) in self.nodes


def _saving_of_nodes(nodes: Sequence[Node], needed: Collection[Node], is_saved: Callable[[Node], bool]) -> Saving:
    """Return the recompute that saving the values of some nodes avoids, if the backward pass reads or runs `needed`."""
    spared = upstream((read for node in nodes for read in node.reads), lambda read: read not in needed)
    ends = [read for here in [*nodes, *spared] for read in here.reads if read in needed]
    again = set(upstream(ends, lambda read: not is_saved(read)))
    free = upstream(ends, lambda read: read in again and read.has_zero_cost)
    ends += [read for here in free for read in here.reads]
    ends = [read for read in ends if read in again and not read.has_zero_cost]
    uncounted = any(read.uncounted for read in spared)
    matmuls = [read for read in again if read.equation is not None and read.equation.primitive in MATMULS]
    return Saving(
        sum(read.cost for read in spared),
        sum(read.cost for read in again),
        ends,
        uncounted,
        nbytes=sum(node.nbytes for node in nodes),
        costliest=max((read.cost / _result_bytes(read) for read in matmuls), default=math.inf),
    )


def _result_bytes(node: Node) -> int:
    """Return the bytes of a node's results in all iterations of the loops around it, at least 1."""
    each = sum(value.device_bytes for value in node.equation.outputs) if node.equation else 0
    return max(1, each * math.prod(loop.length for loop in node.loops))


def names_of(linted: LintedFunction) -> Names:
    """Return the names of a function, from a trace with a name on every value that may be worth naming."""
    values = Values(Inliner().whole(linted.jaxpr))
    candidates = find_candidates(values)
    name_of = {id(eqn): name for name, candidate in candidates.items() for eqn in candidate.eqns}

    def change(eqn: JaxprEqn, old: JaxprEqn) -> Sequence[JaxprEqn]:
        return jax_compat.with_name(eqn, name_of[id(old)]) if id(old) in name_of else [eqn]

    graph = graph_of(linted.trace_of(with_policy(linted.changed(change), nothing)))
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
    return Names(linted, values, graph, graph.walk(given), candidates, equations, nodes)


def _name_at(node: Node) -> NameAt:
    """Return the name that a node gives, and its line."""
    assert node.name is not None and node.equation is not None  # every node with a name has one
    return name_at(node.name, node.equation.source)

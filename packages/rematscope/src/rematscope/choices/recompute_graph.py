"""The operations that a backward pass recomputes, as a graph."""

import dataclasses
import hashlib
from collections.abc import Sequence
from functools import cached_property

from rematscope.choices.choice_graph import ChoiceGraph, dependencies_of
from rematscope.ir.program import Equation, Value
from rematscope.jax_compat import Policy
from rematscope.render.units import amount_texts, counted, joined, seconds_text
from rematscope.tracing.trace import Trace


@dataclasses.dataclass(eq=False, repr=False)  # a repr would list all nodes that it depends on
class Node:
    """An operation of the backward pass, or one of its inputs.

    Attributes:
      reads: the nodes whose results this node reads.
      cost: the recompute cost, over all iterations of the loops around the operation.
      name: the `checkpoint_name` that the operation gives to its operand, or None.
      array: the array that is saved: the forward pass's value of a name, or a residual. An array of several nodes is
        saved once.
      nbytes: the bytes of `array`.
      equation: the operation; None for a residual or a loop's carry.
      kept: whether the node is a residual, which is saved if any operation that runs reads it.
      loops: the loops and branches around the operation.
      depends_on_loops: the `scan` whose carry or slice the node is, if any.
      uncounted: the primitives of unknown cost that the operation runs; `cost` does not include them.
    """

    reads: list["Node"] = dataclasses.field(default_factory=list)
    cost: float = 0
    name: str | None = None
    array: Value | None = None
    nbytes: int = 0
    equation: Equation | None = None
    kept: bool = False
    loops: frozenset[Equation] = frozenset()
    depends_on_loops: frozenset[Equation] = frozenset()
    uncounted: frozenset[str] = frozenset()

    @property
    def has_zero_cost(self) -> bool:
        """Whether the operation is known to cost nothing."""
        return not self.cost and not self.uncounted


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RecomputeGraph(ChoiceGraph):
    """The graph of a function's backward pass that gives the recompute of every choice of names.

    Attributes:
      nodes: all operations of the backward program, in program order.
      roots: the nodes that run for every choice, because they compute results or have side effects.
      barred: maps each name that no choice may save to the reason.
      uncounted: the primitives of unknown cost that a choice may recompute. If there are any, no choice can be proven
        to be the best.
      policies: the distinct policies of the function's own checkpoints.
      device: the name of the device if costs are seconds on this device; "" for another unit.
      weighing: on a mesh, a clause that says how link bytes are weighed against FLOPs, and which shardings are
        estimates.
      remat3: whether the graph predicts what JAX saves with `jax_remat3` set.
      names, parts, least_bytes, least_cost: as in `ChoiceGraph`.
    """

    trace: Trace
    nodes: tuple[Node, ...]
    roots: tuple[Node, ...]
    barred: dict[str, str]
    uncounted: frozenset[str]
    policies: tuple[Policy, ...] = ()
    device: str = ""
    weighing: str = ""
    remat3: bool = False

    def __repr__(self) -> str:
        named, size = counted(len(self.names), "name"), counted(len(self.nodes), "operation")
        return f"<{self.trace.function}: {named} to choose, {size} in its backward pass>"

    def walk(self, saved: frozenset[str]) -> set[Node]:
        """Return the nodes that the backward pass runs or reads if the names in `saved` are saved."""
        return dependencies_of(self.roots, saved)

    @property
    def uncounted_text(self) -> str:
        """A clause such as `the cost of ffi_call and while is not known`; empty if all costs are known."""
        return f"the cost of {joined(sorted(self.uncounted))} is not known" if self.uncounted else ""

    def amount(self, cost: float) -> str:
        """Return a cost with its unit: `1.2 M`, or `5.58 ms` if costs are seconds."""
        return self.amounts([cost])[0]

    def amounts(self, costs: Sequence[float]) -> list[str]:
        """Return the costs of a table column with one common unit, such as `0.0974 T` and `6.69 T`."""
        return [*map(seconds_text, costs)] if self.device else amount_texts(costs)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything that a choice depends on: operations, shapes, costs, bytes, names and arrays."""
        number = {node: i for i, node in enumerate(self.nodes)}
        kept: dict[Value | None, int] = {None: 0}
        digest = hashlib.sha256()
        for node in self.nodes:
            made = node.equation and (node.equation.primitive, [str(v.aval) for v in node.equation.outputs])
            array = kept.setdefault(node.array, len(kept)), node.nbytes, node.kept
            line = made, node.cost, node.name, array, [number[n] for n in node.reads]
            digest.update(repr(line).encode())
        digest.update(repr([number[n] for n in self.roots]).encode())
        return digest.hexdigest()

"""The operations that a backward pass recomputes, as a graph."""

import dataclasses
import hashlib
from collections.abc import Sequence
from functools import cached_property

from rematscope.choices.choice_graph import ChoiceGraph, dependencies_of
from rematscope.ir.program import Equation, Value
from rematscope.jax_compat import Policy
from rematscope.render.units import amount_texts, counted, seconds_text
from rematscope.tracing.trace import Trace


@dataclasses.dataclass(eq=False, repr=False)  # what it reads reads others
class Node:
    """An operation of the backward pass, or one of its inputs.

    Attributes:
      reads: the nodes whose results it reads.
      cost: its recompute cost, over all iterations of the loops around it.
      name: the `checkpoint_name` that it gives to its operand, or None.
      array: the array that is saved: the forward pass's value of a name, or a residual. Each is saved once.
      nbytes: the bytes of `array`.
      equation: the operation; None for a residual or a loop's carry.
      kept: whether it is a residual, which is saved as soon as anything reads it.
      loops: the loops and branches around it.
      depends_on_loops: the scan that it is a carry or a slice of.
      uncounted: primitives of unknown cost that it runs, which `cost` does not include.
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
        """Whether its recompute is known to cost nothing."""
        return not self.cost and not self.uncounted


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RecomputeGraph(ChoiceGraph):
    """The recompute of a function for every choice of names, as a graph of single operations.

    Attributes:
      trace: the trace that the graph was built from.
      nodes: all operations of the backward program, in program order.
      roots: the nodes that run in any case, since they compute results or have effects.
      barred: the names that no choice may save, each with the reason.
      uncounted: primitives of unknown cost that a choice may recompute; no choice can be proven the best then.
      policies: the policies of the function's own checkpoints, each once.
      device: the device in whose seconds costs are given; "" for another unit.
      weighing: on a mesh, how link bytes are weighed against FLOPs, and which shardings are estimates, as a clause.
      remat3: whether it predicts what is saved with `jax_remat3` set.
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
        """Return the nodes that the backward pass runs or reads if these names are saved."""
        return dependencies_of(self.roots, saved)

    @property
    def uncounted_text(self) -> str:
        """The clause `the cost of ffi_call and while is not known`; empty if everything is counted."""
        *others, last = sorted(self.uncounted) or [""]
        listed = f"{', '.join(others)} and {last}" if others else last
        return f"the cost of {listed} is not known" if last else ""

    def amount(self, cost: float) -> str:
        """A cost with its unit: `1.2 M`, or `5.58 ms` on a device."""
        return self.amounts([cost])[0]

    def amounts(self, costs: Sequence[float]) -> list[str]:
        """Return the costs of a column with their unit, which is the same for all: `0.0974 T` and `6.69 T`."""
        return [*map(seconds_text, costs)] if self.device else amount_texts(costs)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that a choice depends on: operations, shapes, costs, bytes, names, and shared arrays."""
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

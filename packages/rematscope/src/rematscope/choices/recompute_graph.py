"""What the backward pass computes again for every choice of names, from one trace.

The trace is that of a function whose checkpoints save nothing. Its backward program computes again all that any choice
of names could ask for, so it is a graph in which a choice is a walk: from what the backward pass proper reads, back
through what makes it, as far as a saved name or something that was there anyway.
"""

import dataclasses
import hashlib
import math
import numbers
from collections.abc import Callable, Iterable
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from rematscope.errors import PlanError
from rematscope.ir import jax_internals, roles
from rematscope.ir.cost import cost_of
from rematscope.ir.program import BOOKKEEPING, Equation, Literal, Program, Value
from rematscope.tracing.checkpoints import nothing, with_policy
from rematscope.tracing.trace import Passes, trace


def work(equation: Equation) -> int:
    """FLOPs, and one for each element that a transcendental function is applied to."""
    cost = cost_of(equation)
    return cost.flops + cost.transcendentals


@dataclasses.dataclass(eq=False)
class Node:
    """An operation of the backward pass, or something that it is given.

    Attributes:
      reads: the nodes whose results it reads.
      cost: what computing it again takes, over all iterations of the loops around it.
      name: the `checkpoint_name` that it gives to what it reads, or None.
      array: what is kept if it is saved: the forward pass's value of a name, or a residual. Each is kept once.
      nbytes: bytes of `array`.
      equation: the operation; None for a residual or a loop's carry.
      kept: it is a residual, so it is kept as soon as anything reads it.
      loops: the scans around it.
      changes_with: the scan that it is a carry or a slice of.
    """

    reads: list["Node"] = dataclasses.field(default_factory=list)
    cost: float = 0
    name: str | None = None
    array: Value | None = None
    nbytes: int = 0
    equation: Equation | None = None
    kept: bool = False
    loops: frozenset[Equation] = frozenset()
    changes_with: frozenset[Equation] = frozenset()


class RecomputeGraph:
    """The recomputations of a function under every choice of names.

    Attributes:
      nodes: everything that the backward program computes, in its order.
      names: the names that some choice can save, in the order of the program.
      barred: names that no choice may save, and why.
      least_bytes: bytes of computed residuals that are kept whatever is chosen.
      least_cost: cost of what is computed again whatever is chosen.
      parts: what depends on the choice.
    """

    def __init__(self, passes: Passes, cost: Callable[[Equation], float] = work):
        self.passes = passes
        self._cost = cost
        self._node: dict[Value, Node] = {}
        self.nodes: list[Node] = []
        self.barred: dict[str, str] = {}
        for residual in passes.residuals:
            if residual.value not in self._node:
                computed = residual.kind == "computed"
                size = residual.nbytes if computed else 0
                self._new(residual.value, array=residual.value, nbytes=size, kept=computed)
        self._program(passes.backward, 1, ())
        for node in self.nodes:
            if node.name in self.barred:
                node.name, node.array, node.nbytes = None, None, 0
        self._roots = self._reading(passes.backward.outputs)
        self._roots += [node for node in self.nodes if node.equation and node.equation.eqn.effects]
        self._lengths_of_names()

        everything = self.walk(frozenset())
        names = frozenset(node.name for node in everything if node.name is not None)
        needed = self.walk(names)
        # JAX also keeps some values that nothing reads.
        needed |= {node for node in self.nodes if node.kept and node not in everything}
        self.names = tuple(name for name in dict.fromkeys(n.name for n in self.nodes) if name in names)
        self.least_bytes = sum({n.array: n.nbytes for n in needed if n.kept}.values())
        self.least_cost = sum(node.cost for node in self.nodes if node in needed)
        self.parts = self._parts([node for node in self.nodes if node in everything], needed)

    def evaluate(self, names: Iterable[str]) -> tuple[int, float]:
        """Bytes of computed residuals, and the cost of what is computed again, if these names are saved."""
        names = frozenset(names)
        found = self._reached(names)
        reached = [part for part in self.parts if part in found]  # in order, for sums of floats to be the same again
        arrays = {array: size for p in reached if p.name is None or p.name in names for array, size in p.arrays.items()}
        return self.least_bytes + sum(arrays.values()), self.least_cost + sum(part.cost for part in reached)

    @property
    def all_recomputed(self) -> float:
        """The cost of everything that the traced backward program computes again."""
        return sum(node.cost for node in self.nodes)

    def helpful(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of `names` that are saved if all of them may be, in the order of the program."""
        names = frozenset(names)
        saved = {part.name for part in self._reached(names)} & names
        return tuple(name for name in self.names if name in saved)

    def _reached(self, saved: frozenset[str]) -> set["Part"]:
        reached = {part for part in self.parts if part.entry}
        pending = list(reached)
        while pending:
            part = pending.pop()
            if part.name is None or part.name not in saved:
                new = [p for p in part.reads if p not in reached]
                reached.update(new)
                pending += new
        return reached

    @cached_property
    def digest(self) -> str:
        """A hash of all that a choice depends on: operations, shapes, costs, bytes, names, and what is kept once."""
        number = {node: i for i, node in enumerate(self.nodes)}
        kept: dict[Value | None, int] = {None: 0}
        digest = hashlib.sha256()
        for node in self.nodes:
            made = node.equation and (node.equation.primitive, [str(v.aval) for v in node.equation.outputs])
            array = kept.setdefault(node.array, len(kept)), node.nbytes, node.kept
            line = made, node.cost, node.name, array, [number[n] for n in node.reads]
            digest.update(repr(line).encode())
        digest.update(repr([number[n] for n in self._roots]).encode())
        return digest.hexdigest()

    def walk(self, saved: frozenset[str]) -> set[Node]:
        """What the backward pass reads or computes again if these names are saved."""
        reached = set(self._roots)
        pending = list(reached)
        while pending:
            node = pending.pop()
            if node.name is None or node.name not in saved:
                new = [n for n in node.reads if n not in reached]
                reached.update(new)
                pending += new
        return reached

    # How the graph is made

    def _new(self, value: Value | None = None, reads: Iterable[Value] = (), **attributes) -> Node:
        node = Node(self._reading(reads), **attributes)
        self.nodes.append(node)
        if value is not None:
            self._node[value] = node
        return node

    def _reading(self, values: Iterable[Value]) -> list[Node]:
        # What is not computed in the backward program is an argument, a constant or a cotangent: always there.
        return list(dict.fromkeys(self._node[v] for v in values if not isinstance(v, Literal) and v in self._node))

    def _program(self, program: Program, times: int, around: tuple) -> None:
        """Makes the nodes of a program that runs `times` times; `around` are the loops and branches that it is in."""
        for equation in program.equations:
            if equation.primitive == "optimization_barrier":
                continue
            if equation.primitive == "scan":
                self._scan(equation, times, around)
                continue
            if equation.primitive == "cond":
                self._cond(equation, times, around)
                continue
            if equation.primitive in self.passes.unopened and (equation.role == roles.LATE or _has_names(equation)):
                # All that reads it would be called late too; and a checkpoint inside is not seen.
                raise PlanError(
                    f"{self.passes.function} has a checkpoint around {equation.primitive} or in it, and what that "
                    "computes again inside cannot be told from outside. Plan the function that it runs by itself."
                )
            name = equation.params["name"] if equation.primitive == "name" else None
            nbytes = sum(v.nbytes for v in equation.outputs) if name is not None else 0
            cost = self._recomputed(equation) * times
            node = self._new(None, equation.inputs, cost=cost, name=name, nbytes=nbytes, equation=equation)
            if name is not None:
                (value,) = equation.outputs
                node.array = self.passes.forward_value_of.get(value, value)
                if reason := _barred(equation, around):
                    self.barred.setdefault(name, reason)
            node.loops = frozenset(around)
            self._node.update(dict.fromkeys(equation.outputs, node))

    def _scan(self, equation: Equation, times: int, around: tuple) -> None:
        """A loop is as many nodes as its body; its carries lead from an iteration back to the one before."""
        (body,) = equation.bodies
        carries = equation.carries
        inside = (*around, equation)
        carried = [self._new(v, [start]) for v, start in zip(body.inputs, equation.initial, strict=False)]
        slices = [
            self._new(v, [array]) for v, array in zip(body.inputs[carries:], equation.stacked_inputs, strict=True)
        ]
        for node in (*carried, *slices):
            node.loops, node.changes_with = frozenset(inside), frozenset([equation])
        self._program(body, times * equation.length, inside)
        for node, out in zip(carried, body.outputs, strict=False):
            node.reads = list(dict.fromkeys([*node.reads, *self._reading([out])]))
        # Who needs the last value of a carry has to have its start too, even where an iteration does not read it.
        for value, last in zip(equation.outputs, [*body.inputs[:carries], *body.outputs[carries:]], strict=True):
            self._new(value, [last]).loops = frozenset(around)

    def _cond(self, equation: Equation, times: int, around: tuple) -> None:
        """Branches are as many nodes as they have operations. All count, for which is taken is not in the program."""
        for body in equation.bodies:
            self._program(body, times, (*around, equation))
        for value, *results in zip(equation.outputs, *(body.outputs for body in equation.bodies), strict=True):
            self._new(value, [equation.inputs[0], *results]).loops = frozenset(around)

    def _recomputed(self, equation: Equation) -> float:
        """What an equation, or an iteration of a dynamic loop with all in it, spends on computing again."""
        if equation.bodies:
            return sum(self._recomputed(inner) for body in equation.bodies for inner in body.equations)
        if equation.role != roles.RECOMPUTED or equation.primitive in BOOKKEEPING:
            return 0
        said = self._cost(equation)
        try:
            cost = int(said) if isinstance(said, numbers.Integral) else float(said)
        except (TypeError, ValueError):
            cost = math.nan
        if not 0 <= cost < math.inf:
            raise PlanError(
                f"cost= says that {equation.primitive} costs {said!r}. Return a number for each equation, and none "
                "below 0."
            )
        return cost

    def _lengths_of_names(self) -> None:
        """Multiplies the bytes of a name in a loop by its length, unless it is the same in every iteration.

        JAX takes what does not change out of a loop before it stacks what is saved.
        """
        changes = {node: node.changes_with for node in self.nodes}
        before = None
        while changes != before:  # once more for what a carry brings from the iteration before
            before = dict(changes)
            for node in self.nodes:
                changes[node] = node.changes_with.union(*(changes[n] for n in node.reads)) & node.loops
        for node in self.nodes:
            if node.name is not None:
                node.nbytes *= int(np.prod([loop.length for loop in changes[node]], dtype=np.int64))

    def _parts(self, everything: list[Node], needed: set[Node]) -> list["Part"]:
        """What depends on the choice, with all merged that is reached together."""
        free = [node for node in everything if node not in needed or node.name is not None]
        kept_anyway = {node.array for node in needed if node.kept}
        readers: dict[Node, set[Node]] = {node: set() for node in free}
        for node in free:
            for read in node.reads:
                if read in readers:
                    readers[read].add(node)
        merged = {node: node for node in free}

        def into(node: Node) -> Node:
            while merged[node] is not node:
                node = merged[node]
            return node

        changed = True
        while changed:
            changed = False
            alike: dict[frozenset, Node] = {}
            for node in reversed(free):
                if node.name is not None or merged[node] is not node:
                    continue
                by = frozenset(map(into, readers[node])) - {node}
                other = next(iter(by)) if len(by) == 1 and next(iter(by)).name is None else alike.setdefault(by, node)
                if other is not node:
                    merged[node] = other
                    readers[other] |= readers[node]
                    changed = True

        parts = {node: Part(node.name, node in needed) for node in free if merged[node] is node}
        for node in free:
            part = parts[into(node)]
            part.cost += node.cost
            if (node.kept or node.name is not None) and node.array not in kept_anyway:
                part.arrays[node.array] = node.nbytes
            for reader in dict.fromkeys(map(into, readers[node])):
                if (other := parts[reader]) is not part and other not in part.readers:
                    part.readers.append(other)
                    other.reads.append(part)
        return list(parts.values())


def _barred(named: Equation, around: tuple) -> str | None:
    """Why a value cannot be saved by its name although the backward pass computes it again, or None."""
    if any(equation.primitive == "cond" for equation in around):
        return "stands in a branch, and what branches save shares its memory"
    if any(jax_internals.is_checkpoint(eqn) and jax_internals.policy_of(eqn) is not nothing for eqn in named.calls):
        return "stands in a checkpoint of a custom rule, which keeps its own policy"
    if any(map(jax_internals.is_custom_rule, named.calls)):
        return "stands in a function with a rule of its own, into which a checkpoint does not look"
    if any(jnp.issubdtype(value.dtype, jnp.complexfloating) for value in named.outputs):
        return "is the name of complex numbers, which JAX fails to save by name"
    return None


def _has_names(equation: Equation) -> bool:
    """Whether the program of an operation that is not opened gives names."""

    def named(jaxpr) -> bool:
        eqns = jax_internals.body_of(jaxpr)[0].eqns
        return any(
            jax_internals.checkpoint_name(eqn) is not None or any(map(named, jax_internals.bodies(eqn))) for eqn in eqns
        )

    return any(map(named, jaxprs_in_params(equation.params)))


@dataclasses.dataclass(eq=False)
class Part:
    """What is reached together: a name, or operations and the residuals that only they read.

    Attributes:
      name: a name that stops the walk if it is saved, or None.
      entry: it is a name that the backward pass reads whatever is saved.
      reads, readers: the parts that are reached from it, and those from which it is reached.
      cost: what computing it again takes.
      arrays: what is kept if it is saved (a name) or reached (residuals), with its bytes.
    """

    name: str | None
    entry: bool
    reads: list["Part"] = dataclasses.field(default_factory=list)
    readers: list["Part"] = dataclasses.field(default_factory=list)
    cost: float = 0
    arrays: dict[Value, int] = dataclasses.field(default_factory=dict)


def recompute_graph(f: Callable, *args, cost: Callable[[Equation], float] = work, **kwargs) -> RecomputeGraph:
    """The graph of what `f`'s backward pass computes again for any choice of names.

    Args:
      f: a function that is differentiable in reverse mode. It is not run. Its checkpoints are what names are chosen
        for, whatever policies they have; if it has none, one checkpoint around all of it is.
      *args, **kwargs: its arguments, as for `trace`.
      cost: what computing an equation again takes; FLOPs and transcendentals by default.

    Raises:
      TraceError: as `trace` does.
      PlanError: if `cost` gives something that is no cost.
    """
    with jax_internals.default_remat():  # the next one forgets the names that it does not save
        try:
            passes = trace(with_policy(f, nothing), *args, **kwargs)
        except NotImplementedError as error:
            if "Effects not supported" not in str(error):
                raise
            raise PlanError(
                f"{getattr(f, '__name__', 'the function')} calls back to Python in a way that a checkpoint may not "
                "repeat, such as io_callback. Put checkpoints around the parts that do not."
            ) from None
    return RecomputeGraph(passes, cost)

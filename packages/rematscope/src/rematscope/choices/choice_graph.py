"""The saved bytes and the recompute of each choice of names."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, Self, TypeVar

from rematscope.ir.dependence import reachable


class Dependent(Protocol):
    """A node of a dependency graph."""

    @property
    def name(self) -> str | None:
        """The name at which a walk ends if it is saved, or None."""

    @property
    def reads(self) -> Sequence[Self]:
        """The nodes that it depends on."""


AnyDependent = TypeVar("AnyDependent", bound=Dependent)


def dependencies_of(starts: Iterable[AnyDependent], saved: Collection[str]) -> set[AnyDependent]:
    """Return `starts` and all nodes that they depend on, up to saved names.

    The result includes saved names, but not the operations that compute them. The backward pass recomputes all other
    nodes of the result. This is graph reachability; its time is proportional to the size of the reached subgraph.
    """
    return set(reachable(starts, lambda step: () if step.name is not None and step.name in saved else step.reads))


@dataclasses.dataclass(eq=False, repr=False)  # `reads` and `readers` are cyclic
class Part:
    """A node of a `ChoiceGraph`: a name, or a group of operations that every choice recomputes together.

    Loop carries make parts depend on each other cyclically, so parts are created first and linked afterwards.

    Attributes:
      name: the checkpoint name; None for a group of operations. Dependencies are not followed past a saved name.
      entry: whether the part is a name that the backward pass reads whatever is saved.
      cost: the recompute cost, in the unit of the graph's cost.
      arrays: maps each array to its bytes. These arrays are saved if the name is saved or, for a group of operations,
        if the operations are recomputed. An array that several parts list is saved only once.
      reads, readers: the parts that this part depends on, and the parts that depend on this part; see `link`.
    """

    name: str | None = None
    entry: bool = False
    cost: float = 0
    arrays: dict[object, int] = dataclasses.field(default_factory=dict)
    reads: list["Part"] = dataclasses.field(default_factory=list)
    readers: list["Part"] = dataclasses.field(default_factory=list)


def link(reader: Part, read: Part) -> None:
    """Record that `reader` depends on `read`, in both parts. Linking two parts twice has no further effect."""
    if reader is not read and reader not in read.readers:
        read.readers.append(reader)
        reader.reads.append(read)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ChoiceGraph:
    """A dependency graph that gives the saved bytes and the recompute cost of every choice of names.

    Attributes:
      names: the names that can be saved, in program order.
      parts: the nodes whose recompute depends on the choice.
      least_bytes: the bytes of computed residuals that every choice saves.
      least_cost: the recompute cost that every choice includes, in the unit of `recompute_graph`'s `cost`.
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    least_bytes: int
    least_cost: float

    def evaluate(self, names: Iterable[str]) -> tuple[int, float]:
        """Return the bytes of computed residuals and the recompute cost of saving `names`.

        Args:
          names: the names to save. Names that are not in the graph are ignored.

        Returns:
          The saved bytes, and the cost in the unit of `least_cost`. The cost is an integer if the costs of all parts
          are integers.
        """
        names = frozenset(names)
        found = self._reached_parts(names)
        here = [part for part in self.parts if part in found]  # in order, so that sums of floats are reproducible
        arrays = {array: size for p in here if p.name is None or p.name in names for array, size in p.arrays.items()}
        return self.least_bytes + sum(arrays.values()), self.least_cost + sum(part.cost for part in here)

    def helpful(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the subset of `names` that has an effect if all of `names` are saved, in program order.

        The backward pass does not depend on the other names, so removing them changes neither the bytes nor the cost.
        """
        names = frozenset(names)
        saved = {part.name for part in self._reached_parts(names)} & names
        return tuple(name for name in self.names if name in saved)

    def _reached_parts(self, saved: frozenset[str]) -> set[Part]:
        return dependencies_of((part for part in self.parts if part.entry), saved)

"""The saved bytes and the recompute of each choice of names."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, Self, TypeVar


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
    """Return all nodes that `starts` depend on, up to saved names.

    A saved name is included, and what it is computed from is not. The included names are saved, and all other included
    operations are recomputed. This is reachability in a graph, in time proportional to the part that is reached.
    """
    found = set(starts)
    pending = list(found)
    while pending:
        step = pending.pop()
        if step.name is None or step.name not in saved:
            new = [read for read in step.reads if read not in found]
            found.update(new)
            pending += new
    return found


@dataclasses.dataclass(eq=False, repr=False)  # what it reads reads others
class Part:
    """Operations that every choice recomputes together, with the residuals that only they read; or a name.

    Carries of loops make parts depend on each other in circles, so parts are created first and then linked.

    Attributes:
      name: the name, at which the walk ends if it is saved; None for operations.
      entry: whether it is a name that the backward pass reads in any case.
      cost: the recompute cost, in the unit of the graph's cost.
      arrays: the arrays that are saved if the name is saved, or if the operations are reached, with their bytes. An
        array of several parts is saved once.
      reads, readers: the parts that it depends on, and the parts that depend on it; see `link`.
    """

    name: str | None = None
    entry: bool = False
    cost: float = 0
    arrays: dict[object, int] = dataclasses.field(default_factory=dict)
    reads: list["Part"] = dataclasses.field(default_factory=list)
    readers: list["Part"] = dataclasses.field(default_factory=list)


def link(reader: Part, read: Part) -> None:
    """Record on both parts that one reads the other, once."""
    if reader is not read and reader not in read.readers:
        read.readers.append(reader)
        reader.reads.append(read)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ChoiceGraph:
    """The saved bytes and the recompute of every choice of names.

    Attributes:
      names: the names that some choice can save, in the order of the program.
      parts: the parts of the recompute that depend on the choice.
      least_bytes: the bytes of computed residuals that every choice saves.
      least_cost: the recompute cost that every choice has: FLOPs plus 1 per element of a transcendental function, or
        the unit of the user's cost function.
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    least_bytes: int
    least_cost: float

    def evaluate(self, names: Iterable[str]) -> tuple[int, float]:
        """Return the bytes of computed residuals and the recompute cost if these names are saved.

        Args:
          names: any names; names that the graph does not have make no difference.

        Returns:
          The saved bytes, and the cost in the unit of `least_cost`: an integer if all costs are.
        """
        names = frozenset(names)
        found = self._reached_parts(names)
        here = [part for part in self.parts if part in found]  # in order, so that sums of floats are reproducible
        arrays = {array: size for p in here if p.name is None or p.name in names for array, size in p.arrays.items()}
        return self.least_bytes + sum(arrays.values()), self.least_cost + sum(part.cost for part in here)

    def helpful(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that have an effect if all of them are saved, in the order of the program.

        The walk does not reach the other names, so leaving them out changes neither bytes nor cost.
        """
        names = frozenset(names)
        saved = {part.name for part in self._reached_parts(names)} & names
        return tuple(name for name in self.names if name in saved)

    def _reached_parts(self, saved: frozenset[str]) -> set[Part]:
        return dependencies_of((part for part in self.parts if part.entry), saved)

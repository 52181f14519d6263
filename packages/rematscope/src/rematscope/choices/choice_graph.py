"""How saved bytes and recompute depend on a choice of names: all that a search needs."""

import dataclasses
from collections.abc import Iterable

from rematscope.choices.dependencies import dependencies_of


@dataclasses.dataclass(eq=False, repr=False)  # what it reads reads others
class Part:
    """Parts of the recompute that every choice reaches together: a name, or operations and the residuals that only they
    read.

    Parts read each other in circles where a loop carries values, so they are made first and linked then.

    Attributes:
      name: a name that ends the walk if it is saved, or None.
      entry: it is a name that the backward pass reads whatever is saved.
      cost: what computing it again takes, in the unit of the graph's cost.
      arrays: what is kept if it is saved (a name) or reached (residuals), with its bytes. Two parts may keep the same
        array, and it is kept once.
      reads, readers: the parts that are reached from it, and those from which it is reached; see `link`.
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
      parts: what depends on the choice.
      least_bytes: bytes of computed residuals that are kept whatever is chosen.
      least_cost: cost of what is computed again whatever is chosen: FLOPs, and one for each element that a
        transcendental function is applied to, or the unit of a cost of the user's own.
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    least_bytes: int
    least_cost: float

    def evaluate(self, names: Iterable[str]) -> tuple[int, float]:
        """Return the bytes of computed residuals and the recompute cost if these names are saved.

        Args:
          names: any names; those that the graph does not have change nothing.

        Returns:
          Bytes that are kept, and the cost in the unit of `least_cost`: a whole number if all costs are.
        """
        names = frozenset(names)
        found = self._reached_parts(names)
        here = [part for part in self.parts if part in found]  # in order, for sums of floats to be the same again
        arrays = {array: size for p in here if p.name is None or p.name in names for array, size in p.arrays.items()}
        return self.least_bytes + sum(arrays.values()), self.least_cost + sum(part.cost for part in here)

    def helpful(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that have an effect if all of them are saved, in the order of the program.

        The others stand where the walk does not come by once these are saved. To leave them out changes neither bytes
        nor cost.
        """
        names = frozenset(names)
        saved = {part.name for part in self._reached_parts(names)} & names
        return tuple(name for name in self.names if name in saved)

    def _reached_parts(self, saved: frozenset[str]) -> set[Part]:
        return dependencies_of((part for part in self.parts if part.entry), saved)

"""Which operations the backward pass depends on, and so recomputes, when some names are saved."""

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

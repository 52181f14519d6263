"""Which operations the backward pass reaches, and so computes again, when some names are saved."""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, Self, TypeVar


class Dependent(Protocol):
    """What a walk comes by."""

    @property
    def name(self) -> str | None:
        """The name at which a walk ends if it is saved, or None."""

    @property
    def reads(self) -> Sequence[Self]:
        """Where the walk goes on."""


AnyDependent = TypeVar("AnyDependent", bound=Dependent)


def dependencies_of(starts: Iterable[AnyDependent], saved: Collection[str]) -> set[AnyDependent]:
    """All that is read from `starts` on, as far as saved names: they are reached, and what they are made from is not.

    What is kept is what the walk reaches of the names that are saved; what is computed again is all that it goes
    through. It is reachability in a graph, and takes time in proportion to the part that is reached.
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

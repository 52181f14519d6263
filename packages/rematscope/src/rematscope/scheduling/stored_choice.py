"""Choices stored as indices of values, so that another process or another call can restore them."""

import dataclasses
import hashlib
from collections.abc import Iterator

from rematscope.ir.program import Literal, Program, Value
from rematscope.scheduling.backward_emitter import Snapshot
from rematscope.scheduling.candidate import Candidate
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement
from rematscope.scheduling.divided import Segments
from rematscope.scheduling.linearize import Linearized
from rematscope.xla.measure import Measurement


@dataclasses.dataclass(frozen=True)
class StoredChoice:
    """A choice with indices among `primal_values` in place of values; see `Candidate` for the other attributes.

    Attributes:
      of_own: whether it is a choice for the function with its own checkpoints.
      saved, moved: the indices of the saved values, and of those that are offloaded.
      snapshots: the snapshots, with indices of their values.
    """

    of_own: bool
    placement: CheckpointPlacement | None
    saved: tuple[int, ...]
    moved: tuple[int, ...]
    snapshots: tuple[tuple[int, tuple[int, ...]], ...]
    segments: tuple[Segments, ...]

    @classmethod
    def of(cls, candidate: Candidate, own: Linearized | None) -> "StoredChoice":
        """Return the choice of a candidate; `own` is the function with its own checkpoints."""
        place = {value: i for i, value in enumerate(primal_values(candidate.linearized))}
        saved, moved = (
            tuple(sorted(place[v] for v in values if v in place)) for values in (candidate.saved, candidate.moved)
        )
        snapshots = tuple((stop.at, tuple(map(place.__getitem__, stop.live))) for stop in candidate.snapshots)
        return cls(candidate.linearized is own, candidate.placement, saved, moved, snapshots, candidate.segments)

    def values(self, linearized: Linearized) -> tuple[frozenset[Value], tuple[Snapshot, ...], frozenset[Value]]:
        """Return the saved values, the snapshots, and the offloaded values.

        Raises:
          IndexError: if the function has fewer values.
        """
        values = primal_values(linearized)
        saved, moved = (frozenset(values[i] for i in indices) for indices in (self.saved, self.moved))
        return saved, tuple(Snapshot(at, tuple(values[i] for i in live)) for at, live in self.snapshots), moved


@dataclasses.dataclass(frozen=True)
class CachedChoice:
    """A compiled candidate, without the programs that it was made from.

    Attributes:
      choice: what it saves.
      limit: the limit that it was found for.
      peak: the measured bytes, without cotangents of scalars.
      recompute_cost, measurement: as of the candidate.
      bound: the proven lower bound of the recompute.
    """

    choice: StoredChoice
    limit: int
    peak: float
    recompute_cost: float
    measurement: Measurement
    bound: float


def primal_values(linearized: Linearized) -> list[Value]:
    """Return all values of the primal program, bodies included, in an order that depends only on its structure."""
    return list(dict.fromkeys(_walk_values(linearized.primal)))


def _walk_values(program: Program) -> Iterator[Value]:
    yield from program.inputs
    for equation in program.equations:
        for body in equation.bodies:
            yield from _walk_values(body)
        yield from equation.outputs


def digest(linearized: Linearized) -> str:
    """Return the SHA-256 of the operations, their plain parameters, shapes, dtypes, and data flow."""
    number: dict[Value, int] = {}
    found = hashlib.sha256()

    def name(value: Value) -> str:
        if isinstance(value, Literal):
            return f"{value.name}:{value.dtype}"
        return f"{number.setdefault(value, len(number))}:{value.shape}:{value.dtype}"

    def add(program: Program) -> None:
        found.update(" ".join(map(name, program.inputs)).encode())
        for equation in program.equations:
            for body in equation.bodies:
                add(body)
            reads, makes = (" ".join(map(name, values)) for values in (equation.inputs, equation.outputs))
            plain = {key: value for key, value in equation.params.items() if _is_plain(value)}
            found.update(f"{equation.primitive} {reads} -> {makes} {sorted(plain.items())}\n".encode())
        found.update(" ".join(map(name, program.outputs)).encode())

    add(linearized.primal)
    add(linearized.backward)
    return found.hexdigest()


def _is_plain(value: object) -> bool:
    """Whether the text of a parameter is the same in every process."""
    return all(map(_is_plain, value)) if type(value) is tuple else isinstance(value, int | float | str | None)

"""Indices of values, by which a choice is recognized in another process or another call."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence

from rematscope.ir.program import Literal, Program, Value
from rematscope.scheduling.backward_emitter import Snapshot
from rematscope.scheduling.linearize import Linearized


def primal_values(linearized: Linearized) -> list[Value]:
    """Return all values of the primal program, bodies included, in an order that depends only on its structure."""
    return list(dict.fromkeys(_walk_values(linearized.primal)))


def _walk_values(program: Program) -> Iterator[Value]:
    yield from program.inputs
    for equation in program.equations:
        for body in equation.bodies:
            yield from _walk_values(body)
        yield from equation.outputs


def indices_of(linearized: Linearized, kept: Collection[Value]) -> list[int]:
    """Return the indices of values among `primal_values`."""
    return [i for i, value in enumerate(primal_values(linearized)) if value in kept]


def values_at(linearized: Linearized, places: Collection[int]) -> frozenset[Value]:
    """Return the values with these indices."""
    values = primal_values(linearized)
    return frozenset(values[i] for i in places)


def snapshot_indices(linearized: Linearized, snapshots: Sequence[Snapshot]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return snapshots with the indices of their values."""
    place = {value: i for i, value in enumerate(primal_values(linearized))}
    return tuple((stop.at, tuple(place[value] for value in stop.live)) for stop in snapshots)


def snapshots_at(linearized: Linearized, said: Iterable[tuple[int, Iterable[int]]]) -> tuple[Snapshot, ...]:
    """Return the snapshots that `snapshot_indices` described."""
    values = primal_values(linearized)
    return tuple(Snapshot(before, tuple(values[place] for place in there)) for before, there in said)


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

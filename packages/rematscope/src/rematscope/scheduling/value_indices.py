"""What a function is made of, so that a choice for it can be known again: in this process, or from a file."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence

from rematscope.ir.program import Literal, Program, Value
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.schedule import Snapshot


def primal_values(linearized: Linearized) -> list[Value]:
    """All values of the primal program, bodies included, in an order that is the same for the same structure."""
    return list(dict.fromkeys(_values(linearized.primal)))


def _values(program: Program) -> Iterator[Value]:
    yield from program.inputs
    for equation in program.equations:
        for body in equation.bodies:
            yield from _values(body)
        yield from equation.outputs


def places(linearized: Linearized, kept: Collection[Value]) -> list[int]:
    """Where values stand among `primal_values`."""
    return [i for i, value in enumerate(primal_values(linearized)) if value in kept]


def values_at(linearized: Linearized, places: Collection[int]) -> frozenset[Value]:
    """The values that stand there."""
    values = primal_values(linearized)
    return frozenset(values[i] for i in places)


def snapshot_indices(linearized: Linearized, snapshots: Sequence[Snapshot]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Stops of the backward pass, with the places of what is there."""
    place = {value: i for i, value in enumerate(primal_values(linearized))}
    return tuple((stop.at, tuple(place[value] for value in stop.live)) for stop in snapshots)


def snapshots_at(linearized: Linearized, said: Iterable[tuple[int, Iterable[int]]]) -> tuple[Snapshot, ...]:
    """The stops that `places_of_stops` wrote down."""
    values = primal_values(linearized)
    return tuple(Snapshot(before, tuple(values[place] for place in there)) for before, there in said)


def digest(linearized: Linearized) -> str:
    """SHA-256 of operations, their plain parameters, shapes, dtypes, and what reads what."""
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
    """Whether the text of a parameter is the same in another process."""
    return all(map(_is_plain, value)) if type(value) is tuple else isinstance(value, int | float | str | None)

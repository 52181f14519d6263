"""Where a program is narrow: few bytes lead from what is before to what comes after.

Those are the places at which people divide a net into layers, and put a checkpoint around each. Here they are found
without being told: some of them are cut at, such that what crosses these and the longest stretch between two of them
take least together (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import Value, nbytes
from rematscope.jax_compat import is_literal
from rematscope.scheduling.blocks import OPENED, Block
from rematscope.scheduling.linearize import Linearized, reading
from rematscope.tracing.checkpoints import jaxpr_of, without_checkpoints

_MOVES = VIEWS | {"slice", "split", "unstack", "transpose", "broadcast_in_dim", "convert_element_type", "iota"}
_LENGTHS = 24  # of the longest stretch, that are tried


def kept_at_cuts(linearized: Linearized) -> Iterator[frozenset[Value]]:
    """Values of a primal program that cross cuts of it, for several ways to cut; what is expected to take least first.

    Loops are not divided: what their iterations are handed is kept in any case.
    """
    crossing, ends = crossings(linearized), [0]
    for equation in linearized.primal.equations:
        made = equation.outputs if equation.primitive != "optimization_barrier" else ()
        ends.append(ends[-1] + sum(v.device_bytes for v in made if v in linearized.kept))
    widths = [sum(v.device_bytes for v in values) for values in crossing]
    for places in _ways(_narrow(widths), widths, ends[1:]):
        yield frozenset(v for place in places for v in crossing[place])


def crossings(linearized: Linearized) -> list[list[Value]]:
    """Behind each operation of a primal program the values that lead from before to later ones.

    Arguments, and what is only moved of them, are there anyway.
    """
    equations = linearized.primal.equations
    last: dict[Value, int] = {}
    for i, equation in enumerate(equations):
        last.update(dict.fromkeys(reading(equation), i))
    arguments = {*linearized.primal.inputs, *linearized.primal.constants}
    found: list[list[Value]] = []
    live: list[Value] = []
    for i, equation in enumerate(equations):
        made = equation.outputs if equation.primitive != "optimization_barrier" else ()
        if equation.primitive in _MOVES and arguments.issuperset(reading(equation)):
            arguments.update(made)
        live = [v for v in dict.fromkeys((*live, *made)) if last.get(v, -1) > i and v not in arguments]
        found.append(live)
    return found


def stretches(f: Callable[..., Any], finest: bool, /, *args: Any, **kwargs: Any) -> tuple[Block, ...]:
    """What `f` does between narrow places, but for what is behind the last of them; nothing where it is not narrow.

    Args:
      f: a function. Its checkpoints are left out, and what it calls is not opened, but for what is all of it.
      *args, **kwargs: its arguments.
      finest: at all places that are alike, and not at those that are expected to take least.
    """
    body, _, _ = jax_compat.body_of(jaxpr_of(without_checkpoints(f), *args, **kwargs))
    path: Block = ()
    while (around := _around(body)) is not None:
        path = *path, around
        body, _, _ = jax_compat.body_of(jax_compat.bodies(body.eqns[around])[0])
    last: dict[Any, int] = {}
    for i, eqn in enumerate(body.eqns):
        last.update((v, i) for v in eqn.invars if not is_literal(v))
    widths, live, ends = [], dict[Any, int](), [0]
    arguments = {*body.invars, *body.constvars}
    for i, eqn in enumerate(body.eqns):
        if eqn.primitive.name in _MOVES and arguments.issuperset(v for v in eqn.invars if not is_literal(v)):
            arguments.update(eqn.outvars)
        live |= {v: _size(v) for v in eqn.outvars if v not in arguments}
        ends.append(ends[-1] + sum(map(_size, eqn.outvars)))
        live = {v: size for v, size in live.items() if last.get(v, -1) > i}
        widths.append(sum(live.values()))
    # Layers are alike, and so is what leads from one to the next.
    narrow = _narrow(widths)
    alike = [[place for place in narrow if widths[place] == width] for width in sorted({widths[i] for i in narrow})]
    groups = [places for places in alike if len(places) > 1] or [narrow]
    ways = [way for places in groups for way in itertools.islice(_ways(places, widths, ends[1:]), 1)]
    ways = [_from_first(places, widths) for places in groups] if finest else ways
    best = min(ways, key=lambda way: _taken(way, widths, ends[1:]), default=[])
    # A loss makes less and less of what the last layer returns: that layer ends where this begins.
    end = len(widths) - 1
    while end and widths[end - 1] >= widths[end]:
        end -= 1
    behind = [i for i in range(end, len(widths)) if best and best[-1] < i and widths[i] <= widths[best[-1]]]
    cuts = [0, *(place + 1 for place in (*best, *behind[:1]))]
    return tuple((*path, *span) for span in itertools.pairwise(cuts))


def _around(body: Any) -> int | None:
    """Which equation is the jit that a program is nothing but, or its only `shard_map`; None if it has neither."""
    names = [eqn.primitive.name for eqn in body.eqns]
    if names.count("shard_map") == 1:
        return names.index("shard_map")
    return 0 if len(names) == 1 and names[0] in OPENED else None


def _size(var: Any) -> int:
    return nbytes(var.aval)


def _ways(places: Sequence[int], widths: Sequence[int], ends: Sequence[int]) -> Iterator[list[int]]:
    """Places to cut at, for several lengths of the longest stretch; what is expected to take least first.

    Args:
      places: where cuts are allowed.
      widths: after each operation, bytes that lead from before to later ones.
      ends: how far each operation reaches, in bytes that were made.
    """
    total = ends[-1] if ends else 0
    found: set[tuple[int, ...]] = set()
    for i in range(_LENGTHS):
        chosen = _cheapest([(ends[t], widths[t]) for t in places], total, math.ceil(total / 2 ** (i / 3)))
        if chosen is None:
            break
        found.add(tuple(places[i] for i in chosen))
    yield from map(list, sorted(found, key=lambda way: _taken(way, widths, ends)))


def _taken(way: Sequence[int], widths: Sequence[int], ends: Sequence[int]) -> int:
    """Bytes of what crosses cuts, and of the longest stretch between them."""
    reached = [0, *(ends[place] for place in way), *ends[-1:]]
    return sum(widths[place] for place in way) + max(b - a for a, b in itertools.pairwise(reached))


def _narrow(widths: Sequence[int]) -> list[int]:
    """Places where less crosses than at the nearest other width on either side; of equal neighbours the first."""
    steps = [i for i, width in enumerate(widths) if i == 0 or width != widths[i - 1]]
    around = zip(steps, steps[1:], steps[2:], strict=False)
    return [here for before, here, after in around if widths[before] > widths[here] < widths[after]]


def _from_first(places: list[int], widths: Sequence[int]) -> list[int]:
    """Places with the end of a first layer, which reads an argument: less is there in it than where it ends."""
    before = 2 * places[0] - places[1] if len(places) > 1 else -1
    return [before, *places] if before >= 0 and widths[before] == widths[places[0]] else places


def _cheapest(places: Sequence[tuple[int, int]], total: int, longest: int) -> list[int] | None:
    """Which places to cut at, so that no stretch is longer and the least crosses; None if there are too few places.

    Args:
      places: how far each is, and how wide.
      total: how far the end is.
      longest: how long a stretch between two cuts may be.
    """
    best: list[tuple[float, int]] = []  # what crosses up to each place, and the cut before it
    for i, (at, width) in enumerate([*places, (total, 0)]):
        ways = [(best[j][0], j) for j in range(i) if at - places[j][0] <= longest]
        if at <= longest:
            ways.append((0, -1))
        crossed, before = min(ways, default=(math.inf, -1))
        best.append((crossed + width, before))
    if math.isinf(best[-1][0]):
        return None
    chosen, i = [], best[-1][1]
    while i >= 0:
        chosen.append(i)
        i = best[i][1]
    return chosen[::-1]

"""Narrow places of a program, where few bytes lead from earlier to later operations.

These are the places where people divide a model into layers and put a checkpoint around each. Here they are found in
the program: it is cut at some of them so that the values that cross the cuts, and the longest stretch between two cuts,
need the least memory together (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import Value, nbytes, reading, total_bytes
from rematscope.jax_compat import AnyJaxpr, is_literal
from rematscope.scheduling.blocks import OPENED, Block
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.settings import SETTINGS

_MOVES = VIEWS | {"slice", "split", "unstack", "transpose", "broadcast_in_dim", "convert_element_type", "iota"}
_Step = tuple[str, Sequence[Any], Sequence[Any]]  # the primitive of an operation, its operands, and its results


def saved_at_cuts(linearized: Linearized) -> Iterator[frozenset[Value]]:
    """Yield the values that cross cuts of a primal program, for several sets of cuts, the smallest expected peak first.

    Loops are not divided: the carries of their iterations are saved in any case.
    """
    crossing, ends = crossings(linearized), [0]
    for equation in linearized.primal.equations:
        ends.append(ends[-1] + total_bytes(v for v in equation.defines if v in linearized.saved))
    widths = [*map(total_bytes, crossing)]
    for places in _place_sets(_narrow_places(widths), widths, ends[1:]):
        yield frozenset(v for place in places for v in crossing[place])


def crossings(linearized: Linearized) -> list[list[Value]]:
    """Return, for each operation of a primal program, the values computed up to it that later operations read.

    Arguments and views of arguments do not count, because they are always live.
    """
    primal = linearized.primal
    steps = [(e.primitive, reading(e), e.defines) for e in primal.equations]
    return _crossings(steps, {*primal.inputs, *primal.constants})


def _crossings(steps: Sequence[_Step], arguments: set[Any]) -> list[list[Any]]:
    """Return the same for operations of any program, and the arguments of this program."""
    last = {v: i for i, (_, reads, _) in enumerate(steps) for v in reads}
    found: list[list[Any]] = []
    live: list[Any] = []
    for i, (primitive, reads, defines) in enumerate(steps):
        if primitive in _MOVES and arguments.issuperset(reads):
            arguments.update(defines)
        live = [v for v in dict.fromkeys((*live, *defines)) if last.get(v, -1) > i and v not in arguments]
        found.append(live)
    return found


def stretches(whole: AnyJaxpr, finest: bool) -> tuple[Block, ...]:
    """Return the blocks of a function between narrow places, without the last one; none if it has no narrow places.

    Args:
      whole: a function without checkpoints. Calls in it are not opened, unless one call is all of it.
      finest: whether to cut at all places of the same width, and not only where the expected peak is smallest.
    """
    path, body = _innermost_body(whole)
    widths, ends = _widths_of(body)
    cuts = _best_places(widths, ends, finest)
    after_last_layer = [i for i in _output_places(widths) if cuts and cuts[-1] < i and widths[i] <= widths[cuts[-1]]]
    edges = [0, *(place + 1 for place in (*cuts, *after_last_layer[:1]))]
    return tuple((*path, *span) for span in itertools.pairwise(edges))


def _innermost_body(jaxpr: Any) -> tuple[Block, Any]:
    """Return the jaxpr inside calls that make up a whole program, and the path to it."""
    body, _, _ = jax_compat.body_of(jaxpr)
    path: Block = ()
    while (call := _only_call(body)) is not None:
        path = *path, call
        body, _, _ = jax_compat.body_of(jax_compat.bodies(body.eqns[call])[0])
    return path, body


def _widths_of(body: Any) -> tuple[list[int], list[int]]:
    """Return, for each equation, the live bytes after it, and the bytes that were computed up to it."""
    steps = [(e.primitive.name, [v for v in e.invars if not is_literal(v)], e.outvars) for e in body.eqns]
    crossing = _crossings(steps, {*body.invars, *body.constvars})
    made = (sum(nbytes(v.aval) for v in eqn.outvars) for eqn in body.eqns)
    return [sum(nbytes(v.aval) for v in live) for live in crossing], [*itertools.accumulate(made)]


def _best_places(widths: Sequence[int], ends: Sequence[int], finest: bool) -> list[int]:
    """Return the places to cut at: repeated layers have places of the same width between them."""
    narrow = _narrow_places(widths)
    same = [[place for place in narrow if widths[place] == width] for width in sorted({widths[i] for i in narrow})]
    groups = [places for places in same if len(places) > 1] or [narrow]
    if finest:
        sets = [_from_first(places, widths) for places in groups]
    else:
        sets = [cuts for places in groups for cuts in itertools.islice(_place_sets(places, widths, ends), 1)]
    return min(sets, key=lambda cuts: _peak_bytes(cuts, widths, ends), default=[])


def _output_places(widths: Sequence[int]) -> range:
    """Return the places at the end of a program at which the loss reduces the output of the last layer step by step."""
    end = len(widths) - 1
    while end > 0 and widths[end - 1] >= widths[end]:
        end -= 1
    return range(max(end, 0), len(widths))


def _only_call(body: Any) -> int | None:
    """Return the jit that makes up a whole program, or the only `shard_map` in it; None if it has neither."""
    names = [eqn.primitive.name for eqn in body.eqns]
    if names.count("shard_map") == 1:
        return names.index("shard_map")
    return 0 if len(names) == 1 and names[0] in OPENED else None


def _place_sets(places: Sequence[int], widths: Sequence[int], ends: Sequence[int]) -> Iterator[list[int]]:
    """Yield sets of places to cut at, for several lengths of the longest stretch, the smallest expected peak first.

    Args:
      places: the places where cuts are allowed.
      widths: for each operation, the bytes that lead from before to later ones.
      ends: for each operation, the bytes that were computed up to it.
    """
    total = ends[-1] if ends else 0
    found: set[tuple[int, ...]] = set()
    for i in range(SETTINGS.cut_lengths):
        chosen = _cheapest_cuts([(ends[t], widths[t]) for t in places], total, math.ceil(total / 2 ** (i / 3)))
        if chosen is None:
            break
        found.add(tuple(places[i] for i in chosen))
    yield from map(list, sorted(found, key=lambda way: _peak_bytes(way, widths, ends)))


def _peak_bytes(way: Sequence[int], widths: Sequence[int], ends: Sequence[int]) -> int:
    """Return the bytes of the values that cross cuts, plus those of the longest stretch between them."""
    reached = [0, *(ends[place] for place in way), *ends[-1:]]
    return sum(widths[place] for place in way) + max((b - a for a, b in itertools.pairwise(reached)), default=0)


def _narrow_places(widths: Sequence[int]) -> list[int]:
    """Return the places that are narrower than their neighbors; of equal neighbors the first."""
    steps = [i for i, width in enumerate(widths) if i == 0 or width != widths[i - 1]]
    around = zip(steps, steps[1:], steps[2:], strict=False)
    return [here for before, here, after in around if widths[before] > widths[here] < widths[after]]


def _from_first(places: list[int], widths: Sequence[int]) -> list[int]:
    """Return the places with the end of the first layer, inside which fewer bytes are live than at its end."""
    before = 2 * places[0] - places[1] if len(places) > 1 else -1
    return [before, *places] if before >= 0 and widths[before] == widths[places[0]] else places


def _cheapest_cuts(places: Sequence[tuple[int, int]], total: int, longest: int) -> list[int] | None:
    """Return the cuts with the fewest crossing bytes; None if every choice has a stretch that is too long.

    Args:
      places: the position and the width of each place.
      total: the position of the end.
      longest: the length that a stretch between two cuts may have.
    """
    best: list[tuple[float, int]] = []  # for each place, the bytes that cross up to it, and the cut before it
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

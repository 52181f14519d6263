"""Choices for a TPU: what a block needs is computed again at once, as a checkpoint around it does.

Late, values that come again live from here to there, each as long as it is read. XLA for a TPU lays those that live
longest at the bottom of its heap and the short-lived large ones on top, whatever holes are between: a GPT of four
layers had 243 MiB live at most, and took 428. What comes again at once, and goes as the block is gone back through,
lies close together: 260 MiB live, 319 taken. With the author's checkpoints, which keep nothing else, it was 348.

A block ends where all that leads on is kept. What reductions make is small, and kept in any case: with the maximum and
the sum of a softmax there a TPU computes its weights with the product that they are made of, and else writes that out
in four bytes. Of products those of the last block are kept first, for they are there when that is gone back through.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from rematscope.ir.primitives import REDUCTIONS
from rematscope.ir.program import Equation, Literal, Value
from rematscope.memory.fused import is_tpu
from rematscope.scheduling.candidate import Candidate, Subject
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.cuts import crossings
from rematscope.scheduling.fusion import HEAVY
from rematscope.scheduling.linearize import Linearized, reading
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.schedule import Snapshot

_SMALL = 32  # times a result of a reduction goes into what is reduced, at least
_HALVED = 5  # times that what is kept is halved for one aim
_SLACK = 1.1  # of an aim: what is predicted of some that take no more, so that one of them is compiled
_COUNTS = 8  # of what is kept of the last block, that are tried


class BlockwiseRecompute:
    """A function in blocks that are computed again at once, as choices of `auto`'s."""

    def __init__(self, subject: Subject, linearized: Linearized, cuts: Sequence[Collection[Value]]):
        """Args:
        subject: what is chosen for.
        linearized: its two programs.
        cuts: values that cross its narrow places, for several ways to cut.
        """
        self._subject, self._linearized, self._cuts = subject, linearized, cuts
        # What each turn of a loop keeps is for the rows to choose, and what is on the host for those that know it.
        self._is_for = is_tpu(subject.target) and subject.moves is None and not linearized.loops

    @property
    def slack(self) -> float:
        """How much more than there is room for may be predicted of what is compiled."""
        return _SLACK if self._is_for else 1

    def within(self, aim: float) -> Iterator[Candidate]:
        """For each way to cut what keeps most of those that are predicted to take no more than an aim, or least.

        Args:
          aim: bytes of temporaries.
        """
        for kept, worth, first in self._bases:
            least, most = first, len(worth) + 1
            found = self._keeping(kept.union(worth[:first]))
            for _ in range(_HALVED if found.estimated_bytes <= aim else 0):
                if (count := (least + most) // 2) == least:
                    break
                candidate = self._keeping(kept.union(worth[:count]))
                if candidate.estimated_bytes <= aim:
                    found, least = candidate, count
                else:
                    most = count
            yield found

    @cached_property
    def _bases(self) -> list[tuple[frozenset[Value], list[Value], int]]:
        """As much as crosses narrow places, such that least is computed again; what else may be kept, the best first;
        and how much of that makes what is predicted least: some of the last block, where it is read at once."""
        if not self._cuts or not self._is_for:
            return []
        rows, small = PeakProgram(self._linearized, cost=self._subject.cost), frozenset(_reduced(self._linearized))
        sizes = {_bytes(cut): None for cut in self._cuts}
        # The backward pass may read what leads on from the last block, too; then two blocks would be one for that.
        narrow = min(self._cuts, key=_bytes)
        sizes[_bytes(narrow) + max(v.device_bytes for v in narrow)] = None
        solved = filter(None, (rows.best(kept=size) for size in sizes))
        found = []
        for kept in dict.fromkeys(each[0] | small for each in solved):
            if ends(self._linearized, kept):
                worth, last = self._worth(kept)
                counts = range(0, last + 1, max(1, last // _COUNTS))
                first = min(counts, key=lambda n: (self._keeping(kept.union(worth[:n])).estimated_bytes, -n))
                found.append((kept, worth, first))
        return found

    def _keeping(self, kept: frozenset[Value]) -> Candidate:
        return Candidate(self._subject, self._linearized, kept, ends(self._linearized, kept))

    def _worth(self, kept: frozenset[Value]) -> tuple[list[Value], int]:
        """Products that may be kept besides, the best first, and how many are of the last block."""
        cost_of = cost_in(self._linearized, self._subject.cost)
        block = _blocks(self._linearized, kept)
        made = [e for e in self._linearized.primal.equations if e.primitive in HEAVY and len(e.outputs) == 1]
        made = [e for e in reversed(made) if e.outputs[0] not in kept]
        last = max((block[e.outputs[0]] for e in made if e.outputs[0] in block), default=0)

        def key(equation: Equation) -> tuple[bool, float]:
            (value,) = equation.outputs
            return block.get(value, last) < last, -cost_of(equation) / max(value.device_bytes, 1)

        found = sorted(made, key=key)
        return [e.outputs[0] for e in found], sum(not key(e)[0] for e in found)


def ends(linearized: Linearized, kept: Collection[Value]) -> tuple[Snapshot, ...]:
    """Where the backward pass comes to another block; nothing if there is but one.

    Args:
      linearized: the function.
      kept: what is kept of it.
    """
    block = _blocks(linearized, kept)
    reads = [[block[v] for v in reading(e) if v in block] for e in linearized.backward.equations]
    snapshots, last = [Snapshot(0, ())], len(reads)
    for number in range(max(block.values(), default=0), 0, -1):
        # What reads none of either goes on from the later one.
        left = max((at for at, numbers in enumerate(reads) if max(numbers, default=-1) >= number), default=-1) + 1
        before = next((at for at in range(left, last) if reads[at]), last)
        snapshots += [Snapshot(before, ())] if snapshots[-1].at < before < last else []
    return tuple(snapshots) if len(snapshots) > 1 else ()


def _blocks(linearized: Linearized, kept: Collection[Value]) -> dict[Value, int]:
    """To which block each value of the primal program belongs; what several blocks hand on to none.

    One ends where all that leads on is kept, and that is read in the next.
    """
    kept = frozenset(kept)
    found: dict[Value, int] = {}
    entered: set[Value] = set()
    number, heavy = 0, False
    for equation, live in zip(linearized.primal.equations, crossings(linearized), strict=True):
        if equation.primitive == "optimization_barrier":
            continue
        found.update(dict.fromkeys(equation.outputs, number))
        heavy = heavy or equation.primitive in HEAVY
        if heavy and live and kept.issuperset(live):
            number, heavy = number + 1, False
            found = {v: i for v, i in found.items() if v not in entered or v not in live}
            found |= {v: number for v in live if v in found}
            entered.update(live)
    found |= {v: found[loop.outputs[0]] for v, loop in linearized.loop_of.items() if found.keys() & loop.outputs[:1]}
    return found


def _bytes(values: Collection[Value]) -> int:
    return sum(v.device_bytes for v in values)


def _reduced(linearized: Linearized) -> Iterator[Value]:
    """What reductions make that is much smaller than what is reduced."""
    for equation in linearized.primal.equations:
        if equation.primitive in REDUCTIONS:
            size = sum(v.device_bytes for v in equation.inputs if not isinstance(v, Literal))
            yield from (v for v in equation.outputs if _SMALL * v.device_bytes <= size)

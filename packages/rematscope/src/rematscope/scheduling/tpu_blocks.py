"""Candidates for a TPU, which recompute all that a block needs together, as a checkpoint around it does.

Values that are recomputed just in time are live for overlapping spans. XLA for a TPU puts long-lived values at the
bottom of its heap and large short-lived ones on top, with holes in between: a GPT of four layers had at most 243 MiB
live, and needed 428. Values that are recomputed together, and dropped with their block, are adjacent: 260 MiB live,
319 needed. With the author's checkpoints, which save nothing else, it was 348.

A block ends where all values that lead on are saved. The results of reductions are small and always saved: with the
maximum and the sum of a softmax in memory, a TPU computes its weights inside the matmul that reads them, and would
otherwise write them to memory in four bytes each. Of matmuls, those of the last block are saved first, since they are
live anyway when that block is reversed.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from rematscope.ir.primitives import REDUCTIONS
from rematscope.ir.program import Equation, Literal, Value
from rematscope.memory.xla_estimate import is_tpu
from rematscope.scheduling.backward_emitter import Snapshot
from rematscope.scheduling.candidate import Candidate, CandidatePool, Subject
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.cuts import crossings
from rematscope.scheduling.fusion import HEAVY
from rematscope.scheduling.linearize import Linearized, reading
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.settings import SETTINGS


class BlockProposer:
    """Candidates that recompute a function block by block."""

    def __init__(self, subject: Subject, linearized: Linearized, cuts: Sequence[Collection[Value]]):
        """Args:
        subject: the function and its target.
        linearized: its two programs.
        cuts: for each way to cut, the values that cross its narrow places.
        """
        self._subject, self._linearized, self._cuts = subject, linearized, cuts
        # The 0/1 program chooses what the iterations of a loop save, and what is offloaded.
        self._is_for = is_tpu(subject.target) and subject.moves is None and not linearized.loops

    @cached_property
    def applies(self) -> bool:
        """Whether the function has blocks that a TPU recomputes."""
        return bool(self._base_choices)

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield, for each way to cut, the candidate within the target that saves most, or else the smallest one."""
        for kept, worth, first in self._base_choices:
            least, most = first, len(worth) + 1
            found = self._save_values(kept.union(worth[:first]))
            for _ in range(SETTINGS.halvings + 1 if found.estimated_bytes <= target_bytes else 0):
                if (count := (least + most) // 2) == least:
                    break
                candidate = self._save_values(kept.union(worth[:count]))
                if candidate.estimated_bytes <= target_bytes:
                    found, least = candidate, count
                else:
                    most = count
            yield found

    @cached_property
    def _base_choices(self) -> list[tuple[frozenset[Value], list[Value], int]]:
        """The choices to start from: their saved values, further values to save, and how many of these to save at
        least.

        The saved values are as large as those that cross narrow places, with the least recompute. The further values
        are sorted, the most valuable first. Saving some of the last block does not raise the peak.
        """
        if not self._cuts or not self._is_for:
            return []
        rows, small = (
            PeakProgram(self._linearized, cost=self._subject.cost),
            frozenset(_small_reductions(self._linearized)),
        )
        sizes = {_total_bytes(cut): None for cut in self._cuts}
        # The backward pass may read what leads on from the last block, too; then two blocks would be one for that.
        narrow = min(self._cuts, key=_total_bytes)
        sizes[_total_bytes(narrow) + max(v.device_bytes for v in narrow)] = None
        solved = filter(None, (rows.best(saved=size) for size in sizes))
        found = []
        for kept in dict.fromkeys(each.saved | small for each in solved):
            if ends(self._linearized, kept):
                worth, last = self._values_by_worth(kept)
                counts = range(0, last + 1, max(1, last // SETTINGS.last_block_counts))
                first = min(counts, key=lambda n: (self._save_values(kept.union(worth[:n])).estimated_bytes, -n))
                found.append((kept, worth, first))
        return found

    def _save_values(self, kept: frozenset[Value]) -> Candidate:
        return Candidate(self._subject, self._linearized, kept, ends(self._linearized, kept))

    def _values_by_worth(self, kept: frozenset[Value]) -> tuple[list[Value], int]:
        """Return the results of matmuls that may be saved too, the most valuable first, and how many the last block
        has.
        """
        cost_of = cost_in(self._linearized, self._subject.cost)
        block = _block_of_values(self._linearized, kept)
        made = [e for e in self._linearized.primal.equations if e.primitive in HEAVY and len(e.outputs) == 1]
        made = [e for e in reversed(made) if e.outputs[0] not in kept]
        last = max((block[e.outputs[0]] for e in made if e.outputs[0] in block), default=0)

        def key(equation: Equation) -> tuple[bool, float]:
            (value,) = equation.outputs
            return block.get(value, last) < last, -cost_of(equation) / max(value.device_bytes, 1)

        found = sorted(made, key=key)
        return [e.outputs[0] for e in found], sum(not key(e)[0] for e in found)


def ends(linearized: Linearized, kept: Collection[Value]) -> tuple[Snapshot, ...]:
    """Return the snapshots at which the backward pass enters another block; none for a single block.

    Args:
      linearized: the function.
      kept: its saved values.
    """
    block = _block_of_values(linearized, kept)
    reads = [[block[v] for v in reading(e) if v in block] for e in linearized.backward.equations]
    snapshots, last = [Snapshot(0, ())], len(reads)
    for number in range(max(block.values(), default=0), 0, -1):
        # What reads none of either goes on from the later one.
        left = max((at for at, numbers in enumerate(reads) if max(numbers, default=-1) >= number), default=-1) + 1
        before = next((at for at in range(left, last) if reads[at]), last)
        snapshots += [Snapshot(before, ())] if snapshots[-1].at < before < last else []
    return tuple(snapshots) if len(snapshots) > 1 else ()


def _block_of_values(linearized: Linearized, kept: Collection[Value]) -> dict[Value, int]:
    """Return the block of each value of the primal program; values that several blocks read have none.

    A block ends where all values that lead on are saved and read in the next block.
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


def _total_bytes(values: Collection[Value]) -> int:
    return sum(v.device_bytes for v in values)


def _small_reductions(linearized: Linearized) -> Iterator[Value]:
    """Yield the results of reductions that are much smaller than their operands."""
    for equation in linearized.primal.equations:
        if equation.primitive in REDUCTIONS:
            size = sum(v.device_bytes for v in equation.inputs if not isinstance(v, Literal))
            yield from (v for v in equation.outputs if SETTINGS.small_reduction * v.device_bytes <= size)

"""Candidates for a TPU that recompute all values of a block together, like a checkpoint around the block.

Values that are recomputed just in time have overlapping live ranges. XLA for a TPU places long-lived values at the
bottom of its heap and large short-lived values on top, and leaves holes in between. A GPT with four layers had at most
243 MiB live, but XLA allocated 428 MiB. Values that are recomputed together, and freed with their block, are adjacent
in memory: with 260 MiB live, XLA allocated 319 MiB. With the author's checkpoints, which save only their inputs, it
allocated 348 MiB.

A block ends where all values that later blocks read are saved. The results of reductions are small and always saved. If
the maximum and the sum of a softmax are saved, a TPU computes the softmax inside the matmul that reads it. Otherwise,
it writes the softmax to memory with four bytes per element. The results of matmuls in the last block are saved first,
because they are live anyway when the backward pass begins with that block.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from rematscope.ir.primitives import REDUCTIONS
from rematscope.ir.program import Equation, Literal, Value, reading, total_bytes
from rematscope.scheduling.backward_emitter import Snapshot
from rematscope.scheduling.candidate import Candidate, CandidatePool, SearchProblem
from rematscope.scheduling.costs import cost_in
from rematscope.scheduling.cuts import crossings
from rematscope.scheduling.fusion import HEAVY
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.settings import SETTINGS
from rematscope.seconds.devices import is_tpu


class BlockProposer:
    """Proposes candidates that recompute a function block by block."""

    def __init__(self, problem: SearchProblem, linearized: Linearized, cuts: Sequence[Collection[Value]]):
        """Args:
        cuts: for each way to cut the function, the values that cross the cuts.
        """
        self._problem, self._linearized, self._cuts = problem, linearized, cuts
        # For loops and for offloading, the 0/1 program proposes the candidates instead.
        self._is_for = is_tpu(problem.target) and problem.moves is None and not linearized.loops

    @cached_property
    def applies(self) -> bool:
        """Whether the function has blocks that a TPU recomputes."""
        return bool(self._base_choices)

    def propose(self, target_bytes: float, pool: CandidatePool) -> Iterator[Candidate]:
        """Yield for each base choice the candidate within the target that saves the most values.

        If none is within the target, yield the candidate with the fewest saved values.
        """
        for saved, worth, first in self._base_choices:
            least, most = first, len(worth) + 1
            found = self._save_values(saved.union(worth[:first]))
            for _ in range(SETTINGS.halvings + 1 if found.estimated_bytes <= target_bytes else 0):
                if (count := (least + most) // 2) == least:
                    break
                candidate = self._save_values(saved.union(worth[:count]))
                if candidate.estimated_bytes <= target_bytes:
                    found, least = candidate, count
                else:
                    most = count
            yield found

    @cached_property
    def _base_choices(self) -> list[tuple[frozenset[Value], list[Value], int]]:
        """The base choices: saved values, further values to save, and the minimum number of further values to save.

        The saved values take as many bytes as the values that cross the cuts, and are chosen for the least recompute.
        The further values are sorted, the most valuable first. The minimum number is above 0 if saving values of the
        last block does not raise the estimated peak.
        """
        if not self._cuts or not self._is_for:
            return []
        rows = PeakProgram(self._linearized, cost=self._problem.cost)
        small = frozenset(_small_reductions(self._linearized))
        sizes = {total_bytes(cut): None for cut in self._cuts}
        # If the backward pass also reads the values that leave the last block, the last two blocks would merge. So a
        # second size has room for one more value.
        narrow = min(self._cuts, key=total_bytes)
        sizes[total_bytes(narrow) + max(v.device_bytes for v in narrow)] = None
        solved = filter(None, (rows.best(saved=size) for size in sizes))
        found = []
        for saved in dict.fromkeys(each.saved | small for each in solved):
            if block_ends(self._linearized, saved):
                worth, last = self._values_by_worth(saved)
                counts = range(0, last + 1, max(1, last // SETTINGS.last_block_counts))
                first = min(counts, key=lambda n: (self._save_values(saved.union(worth[:n])).estimated_bytes, -n))
                found.append((saved, worth, first))
        return found

    def _save_values(self, saved: frozenset[Value]) -> Candidate:
        return Candidate(self._problem, self._linearized, saved, block_ends(self._linearized, saved))

    def _values_by_worth(self, saved: frozenset[Value]) -> tuple[list[Value], int]:
        """Return the unsaved results of matmuls, those of the last block and the most valuable first.

        Also return how many of them belong to the last block.
        """
        cost_of = cost_in(self._linearized, self._problem.cost)
        block = _block_of_values(self._linearized, saved)
        made = [e for e in self._linearized.primal.equations if e.primitive in HEAVY and len(e.outputs) == 1]
        made = [e for e in reversed(made) if e.outputs[0] not in saved]
        last = max((block[e.outputs[0]] for e in made if e.outputs[0] in block), default=0)

        def key(equation: Equation) -> tuple[bool, float]:
            (value,) = equation.outputs
            return block.get(value, last) < last, -cost_of(equation) / max(value.device_bytes, 1)

        found = sorted(made, key=key)
        return [e.outputs[0] for e in found], sum(not key(e)[0] for e in found)


def block_ends(linearized: Linearized, saved: Collection[Value]) -> tuple[Snapshot, ...]:
    """Return the snapshots at which the backward pass enters another block; none if there is only one block."""
    block = _block_of_values(linearized, saved)
    reads = [[block[v] for v in reading(e) if v in block] for e in linearized.backward.equations]
    snapshots, last = [Snapshot(0, ())], len(reads)
    for number in range(max(block.values(), default=0), 0, -1):
        # An operation between two blocks that reads no value of either belongs to the later block.
        left = max((at for at, numbers in enumerate(reads) if max(numbers, default=-1) >= number), default=-1) + 1
        before = next((at for at in range(left, last) if reads[at]), last)
        snapshots += [Snapshot(before, ())] if snapshots[-1].at < before < last else []
    return tuple(snapshots) if len(snapshots) > 1 else ()


def _block_of_values(linearized: Linearized, saved: Collection[Value]) -> dict[Value, int]:
    """Return the block of each value of the primal program, without values that pass through a whole block.

    A block ends after a heavy operation if all values that later operations read are saved. These values count as part
    of the next block, which reads them.
    """
    saved = frozenset(saved)
    found: dict[Value, int] = {}
    entered: set[Value] = set()
    number, heavy = 0, False
    for equation, live in zip(linearized.primal.equations, crossings(linearized), strict=True):
        if equation.primitive == "optimization_barrier":
            continue
        found.update(dict.fromkeys(equation.outputs, number))
        heavy = heavy or equation.primitive in HEAVY
        if heavy and live and saved.issuperset(live):
            number, heavy = number + 1, False
            found = {v: i for v, i in found.items() if v not in entered or v not in live}
            found |= {v: number for v in live if v in found}
            entered.update(live)
    found |= {v: found[loop.outputs[0]] for v, loop in linearized.loop_of.items() if found.keys() & loop.outputs[:1]}
    return found


def _small_reductions(linearized: Linearized) -> Iterator[Value]:
    """Yield the results of reductions that are much smaller than their operands."""
    for equation in linearized.primal.equations:
        if equation.primitive in REDUCTIONS:
            size = sum(v.device_bytes for v in equation.inputs if not isinstance(v, Literal))
            yield from (v for v in equation.outputs if SETTINGS.small_reduction * v.device_bytes <= size)

"""Loops of many turns in segments, so that not every turn's start is kept.

One checkpoint goes around each segment, and none around the last turns, where a schedule keeps what costs most. What is
handed from turn to turn is kept once a segment then, and what a segment makes is there while it is gone back through:
both are least at √n turns, as many as there are bytes in the one for the other (Chen et al., 2016). The last turns, as
many as there is room for, are not computed again: what they made is gone before the first segment is computed again.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from rematscope.choices.build import work
from rematscope.ir import jax_internals
from rematscope.ir.jax_internals import ShardMap
from rematscope.ir.program import nbytes
from rematscope.scheduling.blocks import OPENED, Block, Segments, in_blocks
from rematscope.scheduling.linearize import Linearized, linearize
from rematscope.scheduling.proposal import Proposal, Subject
from rematscope.scheduling.rows import Rows
from rematscope.tracing.checkpoints import jaxpr_of, without_checkpoints
from rematscope.tracing.one_device import mapped
from rematscope.tracing.trace import trace

_WORTH = 0.9  # of what a loop takes with a checkpoint around each turn: segments that take more are not looked at
_NEARER = 3  # times that the last turns are counted anew for one aim


class Segmented:
    """A function whose loops go in segments, as choices of `auto`'s."""

    def __init__(self, subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Rows):
        """Args:
        subject: what is chosen for, with its function.
        args, kwargs: the arguments of the function.
        rows: the 0/1 program of the function without segments.
        """
        self._subject, self._args, self._kwargs, self._rows = subject, args, kwargs, rows
        self._made: dict[tuple[Segments, ...], Proposal] = {}
        self._linearized: dict[tuple[Segments, ...], Linearized] = {}

    def linearized(self, segments: tuple[Segments, ...]) -> Linearized:
        """The function in such segments."""
        if segments not in self._linearized:
            divided = in_blocks(self._subject.once, (), segments=segments)
            self._linearized[segments] = linearize(trace(divided, *self._args, **self._kwargs))
        return self._linearized[segments]

    def within(self, aim: float) -> Iterator[Proposal]:
        """Choices with segments, of which the last are predicted to take about so much, if any takes so little.

        Args:
          aim: bytes of temporaries.
        """
        if not self._loops:
            return
        yield (least := self._with(0.0))
        most = max(length // turns for (*_, turns), length in self._loops)
        lower, upper = (0, least.predicted), (most, self._with(1.0).predicted)
        for _ in range(_NEARER):
            if not lower[1] <= aim < upper[1] or upper[0] - lower[0] < 2:
                return
            count = lower[0] + int((upper[0] - lower[0]) * (aim - lower[1]) / (upper[1] - lower[1]))
            count = min(max(count, lower[0] + 1), upper[0] - 1)  # of segments that are not computed again
            yield (made := self._with(count / most))
            if made.predicted > aim:
                upper = count, made.predicted
            else:
                lower = count, made.predicted

    def _with(self, share: float) -> Proposal:
        """The choice by which such a share of the turns is not computed again."""
        segments = []
        for (*path, turns), length in self._loops:
            last = round(share * length)
            last += (length - last) % turns
            segments += [(*path, turns, last)] if last < length else []
        divided = tuple(segments)
        if divided not in self._made:
            linearized = self.linearized(divided)
            found = Rows(linearized, cost=self._rows.cost).best(price=self._price)
            kept = found[0] if found else linearized.kept
            self._made[divided] = Proposal(self._subject, linearized, kept, segments=divided)
        return self._made[divided]

    @cached_property
    def _loops(self) -> list[tuple[Block, int]]:
        in_work = self._subject.cost == work  # of another cost it is not known what a segment takes again
        return worth_dividing(self._subject.once, *self._args, **self._kwargs) if in_work else []

    @cached_property
    def _price(self) -> float:
        """What a byte has to spare so that it is worth keeping one: what all do that JAX keeps, in the mean."""
        kept = sum(map(self._rows.weight, self._rows.linearized.kept))
        return sum(self._rows.costs.values()) / max(kept, 1)


def worth_dividing(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[Block, int]]:
    """Loops of `f` that had better go in segments: where they are, with how many turns in each; and all of their turns.

    Args:
      f: a function. Loops in loops are not looked at.
      *args, **kwargs: its arguments.
    """
    loops = [(path, eqn, _turns(eqn, around)) for path, eqn, around in _loops(f, *args, **kwargs)]
    return [((*path, turns), jax_internals.scan_of(eqn).length) for path, eqn, turns in loops if turns]


def _loops(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[tuple[Block, Any, ShardMap | None]]:
    """The loops of a function that are in no other: where they are, themselves, and the `shard_map` around them."""

    def look(jaxpr: Any, path: Block, around: ShardMap | None) -> Iterator[tuple[Block, Any, ShardMap | None]]:
        for i, eqn in enumerate(jax_internals.body_of(jaxpr)[0].eqns):
            if eqn.primitive.name in OPENED:
                inner = jax_internals.shard_map_of(eqn) if eqn.primitive.name == "shard_map" else around
                yield from look(jax_internals.bodies(eqn)[0], (*path, i), inner)
            elif eqn.primitive.name == "scan":
                yield (*path, i), eqn, around

    return look(jaxpr_of(without_checkpoints(f), *args, **kwargs), (), None)


def _turns(eqn: Any, around: ShardMap | None) -> int:
    """How many turns of a loop, in a shard_map maybe, had better be in a segment; 0 if segments are not worth it."""
    loop = jax_internals.scan_of(eqn)
    avals: list[Any] = [v.aval for v in jax_internals.body_of(loop.body)[0].invars]
    given = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    handed = sum(map(nbytes, avals[loop.consts : loop.consts + loop.carries]))
    if loop.length < 4 or not handed:
        return 0
    turn: Callable[..., Any] = jaxpr_as_fun(loop.body)
    if around is not None:
        turn, given = mapped(loop.body, around.mesh, around.axes, around.check_vma)
    made = sum(r.device_bytes for r in trace(turn, *given).residuals if r.kind == "computed")
    stacked = sum(nbytes(v.aval) for v in (*eqn.invars[loop.consts + loop.carries :], *eqn.outvars[loop.carries :]))

    def taken(turns: int) -> float:
        rest = loop.length % turns  # turns that are left over are a loop of their own, with copies of what is stacked
        return loop.length // turns * handed + (turns + rest) * made + (stacked if rest else 0)

    turns = min(range(2, loop.length // 2 + 1), key=taken)
    return turns if taken(turns) < _WORTH * (loop.length * handed + made) else 0

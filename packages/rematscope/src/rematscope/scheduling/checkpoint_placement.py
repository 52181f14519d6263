"""Placements of plain checkpoints: those of the author, around layers, or around loop iterations.

Checkpoints reach into loops in loops, branches and `shard_map`, which a schedule treats as one operation.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from rematscope.choices.candidates import MATMUL_POLICIES
from rematscope.ir.source import lines_of
from rematscope.jax_compat import AnyJaxpr
from rematscope.scheduling.blocks import Block, bodies, in_blocks, in_iterations, loops_deep
from rematscope.scheduling.calls import first_half, partitions
from rematscope.scheduling.cuts import stretches
from rematscope.scheduling.settings import SETTINGS
from rematscope.tracing.checkpoints import with_policy, without_checkpoints

POLICIES = MATMUL_POLICIES[::-1]


@dataclasses.dataclass(frozen=True)
class CheckpointPlacement:
    """Where plain checkpoints are, and what they save.

    Attributes:
      blocks: the operations around which there is a checkpoint each; empty if the checkpoints are in loops.
      depth: for checkpoints around the bodies of loops: how many loops are around these loops. None for none in loops.
      policy: the name of one of `jax.checkpoint_policies`; None to save nothing.
      saved: the operations in blocks whose results the checkpoints save, as for `in_blocks`.
      own: whether they are where the author put them. Then no policy means the author's.
    """

    blocks: tuple[Block, ...] = ()
    depth: int | None = None
    policy: str | None = None
    own: bool = False
    saved: tuple[Block, ...] = ()


def checkpointed(f: Callable[..., Any], placement: CheckpointPlacement) -> Callable[..., Any]:
    """Return `f` with checkpoints."""
    policy = getattr(jax.checkpoint_policies, placement.policy) if placement.policy else None
    if placement.own:
        return with_policy(f, policy) if policy else f
    if placement.depth is not None:
        return in_iterations(f, placement.depth, policy)
    return (
        in_blocks(f, placement.blocks, policy, frozenset(placement.saved))
        if placement.blocks
        else without_checkpoints(f)
    )


def in_words(whole: AnyJaxpr, placement: CheckpointPlacement) -> str:
    """Return a description of where checkpoints are in the code of a function, and what they save."""
    if placement.own:
        places = "its own checkpoints"
    elif placement.depth is not None:
        places = "one around the body of each loop" + (f" inside {placement.depth} others" if placement.depth else "")
    elif placement.blocks:
        places = f"one around {_lines_of(whole, placement.blocks)}"
    else:
        places = "none"
    if placement.saved:
        saved = _lines_of(whole, [(*path, i, i + 1) for *path, i in placement.saved])
        return f"{places}, which saves the values computed in {saved}"
    return f"{places}, with policy=jax.checkpoint_policies.{placement.policy}" if placement.policy else places


def _lines_of(whole: AnyJaxpr, blocks: Sequence[Block]) -> str:
    """Return the lines of blocks, `model.py:7-12 (layer), 5 times`, each once."""
    inside = {path: body for path, _, body in bodies(whole)}
    found = Counter(
        lines_of([eqn.source_info for eqn in inside[tuple(path)].eqns[start:end]]) for *path, start, end in blocks
    )
    return "; ".join(lines + (f", {times} times" if times > 1 else "") for lines, times in found.items())


def placements(whole: AnyJaxpr, has_own: bool, closed: bool) -> Iterator[CheckpointPlacement]:
    """Yield placements of plain checkpoints for a function.

    Args:
      closed: whether a schedule cannot reach into a part of it. Then policies and inner loops are tried too.
    """
    if has_own:
        yield CheckpointPlacement(own=True)
        yield from (CheckpointPlacement(own=True, policy=policy) for policy in POLICIES if closed)
    if has_own and not closed:
        return
    found = [stretches(whole, finest) for finest in ([False, True] if closed else [False])]
    for blocks in partitions(whole)[: SETTINGS.partitions if closed else 1]:
        # The backward pass starts with the last block: a checkpoint around it, or its second half, saves no memory.
        found += blocks, blocks[:-1], (*blocks[:-1], first_half(whole, blocks[-1]))
    deep = loops_deep(whole)
    in_loops = (CheckpointPlacement(depth=i) for i in range(deep if closed else min(deep, 1)))
    places = [*(CheckpointPlacement(blocks) for blocks in dict.fromkeys(found) if blocks), *in_loops] or [
        CheckpointPlacement()
    ]
    for place in places:
        yield place
        yield from (dataclasses.replace(place, policy=policy) for policy in POLICIES if closed)

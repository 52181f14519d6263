"""Find blocks of a function that are repeated calls of the author's functions, such as layers.

Authors usually put checkpoints around such calls: a layer, a block of convolutions, a cell. JAX records for each
operation the calls that led to it, so these blocks are found without names. They are also found in the bodies of loops,
and if skip connections leave no narrow place between two blocks.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rematscope import jax_compat
from rematscope.ir.cost import cost_of
from rematscope.ir.primitives import VIEWS
from rematscope.ir.program import Equation, Value, nbytes
from rematscope.ir.source import calls_to
from rematscope.jax_compat import AnyJaxpr, is_literal
from rematscope.scheduling.blocks import OPENED, Block, bodies
from rematscope.scheduling.fusion import HEAVY
from rematscope.scheduling.settings import SETTINGS

_LINEAR = VIEWS | frozenset(
    "add sub neg add_any transpose broadcast_in_dim slice concatenate pad squeeze convert_element_type reduce_sum "
    "copy rev split unstack dynamic_slice gather cumsum psum".split()
)


def worth_saving(whole: AnyJaxpr, blocks: Sequence[Block]) -> list[tuple[Block, int]]:
    """Return the operations whose results are worth saving, with their bytes over all iterations, the most valuable
    first.
    """
    found: list[tuple[float, Block, int]] = []
    for path, iterations, body in bodies(whole):
        for *around, start, end in (block for block in blocks if block[:-2] == path):
            read: set[Any] = set()  # the values that the backward pass needs
            for i in reversed(range(start, end)):
                eqn = body.eqns[i]
                operands = [v for v in eqn.invars if not jax_compat.is_literal(v)]
                if eqn.primitive.name not in _LINEAR or not read.isdisjoint(eqn.outvars):
                    read.update(operands)
                size = sum(nbytes(v.aval) for v in eqn.outvars)
                if len(eqn.outvars) == 1 and size and not read.isdisjoint(eqn.outvars) and (cost := heavy_flops(eqn)):
                    found.append((-cost / size, (*around, i), iterations * size))
    return [(place, size) for _, place, size in sorted(found)]


def heavy_flops(eqn: Any) -> float:
    """Return the FLOPs of an equation if it is, or contains, a matmul or another heavy operation; else 0."""
    if inside := jax_compat.bodies(eqn):
        iterations = jax_compat.scan_of(eqn).length if eqn.primitive.name == "scan" else 1
        return iterations * sum(heavy_flops(e) for body in inside for e in jax_compat.body_of(body)[0].eqns)
    if eqn.primitive.name not in HEAVY:
        return 0.0
    inputs, outputs = (tuple(Value(v.aval) for v in values) for values in (eqn.invars, eqn.outvars))
    return float(cost_of(Equation(eqn.primitive.name, inputs, outputs, eqn.params, eqn)).flops)


def partitions(whole: AnyJaxpr) -> list[tuple[Block, ...]]:
    """Return partitions of a function into blocks that are calls of its functions, the smallest expected peak first."""
    calls = _Calls(whole)
    total_bytes = sum(map(_bytes_made, jax_compat.body_of(whole)[0].eqns))
    large = [function for function, size in calls.made.most_common() if size > SETTINGS.min_call * total_bytes]
    asked = [function for function in large if calls.heavy[function]] or large
    found: list[tuple[Block, ...]] = []
    for first in asked:
        if calls.times[first] > 1:
            partition, size = calls.partition_with(first, asked)
            if size > SETTINGS.min_calls * total_bytes and partition not in found:
                found.append(partition)
    return sorted(found, key=lambda partition: calls.peak_bytes(partition, total_bytes))


class _Calls:
    """The blocks that are calls of functions.

    Attributes:
      blocks: the blocks of each function.
      made, times, heavy: for each function, the bytes that it computes, the number of its runs, and the number of its
        blocks with heavy operations.
    """

    def __init__(self, whole: Any):
        self.blocks: dict[str, list[Block]] = {}
        self.made, self.times, self.heavy = Counter[str](), Counter[str](), Counter[str]()
        self._sizes, self._inputs, self._sizes_once = dict[Block, int](), dict[Block, int](), dict[Block, int]()
        spans_in = dict[tuple[str, Block], list[Block]]()
        for path, iterations, body in bodies(whole):
            each = [iterations * _bytes_made(eqn) for eqn in body.eqns]
            maker = {v: i for i, eqn in enumerate(body.eqns) for v in eqn.outvars}
            for function, spans in _stretches_of_calls(body.eqns).items():
                around = ((at, spans_in.get((function, path[:depth]), ())) for depth, at in enumerate(path))
                if any(start <= at < end for at, outer in around for start, end in outer):
                    continue  # the function calls itself through a jit or in a loop
                spans_in[function, path] = spans
                for start, end in spans:
                    block = (*path, start, end)
                    self.blocks.setdefault(function, []).append(block)
                    self._sizes[block] = sum(each[start:end])
                    self._sizes_once[block] = self._sizes[block] // iterations
                    read = {v for eqn in body.eqns[start:end] for v in eqn.invars if not is_literal(v)}
                    entering = sum(nbytes(v.aval) for v in read if maker.get(v, end) < start)
                    self._inputs[block] = iterations * entering
                    self.made[function] += self._sizes[block]
                    self.times[function] += iterations
                    self.heavy[function] += any(map(heavy_flops, body.eqns[start:end]))

    def partition_with(self, first: str, others: Sequence[str]) -> tuple[tuple[Block, ...], int]:
        """Return the blocks of a function, disjoint blocks of other functions, and the bytes that all blocks compute.

        For example, an encoder and the decoder that follows it call different layers.
        """
        blocks, size = sorted(self.blocks[first]), self.made[first]
        for function in others:
            own = self.blocks[function]
            is_repeated = self.times[function] > 1 or all(blocks[0] < block < blocks[-1] for block in own)
            if is_repeated and not any(_have_overlap(a, b) for a in own for b in blocks):
                blocks = sorted((*blocks, *own))
                size += self.made[function]
        return tuple(blocks), size

    def peak_bytes(self, partition: Sequence[Block], total_bytes: int) -> int:
        """Return the expected peak: the bytes outside blocks, the inputs of all blocks, and the largest block."""
        outside = total_bytes - sum(self._sizes[block] for block in partition)
        entering = sum(self._inputs[block] for block in partition)
        return outside + entering + max(self._sizes_once[block] for block in partition)


def calls_around(whole: AnyJaxpr, blocks: Sequence[Block]) -> list[Block]:
    """Return blocks, with the call of a jit or `shard_map` in place of each block that is the only one in it.

    So layers that are each in their own jit are blocks of one jaxpr, and can be in one group.
    """
    eqns = {(*path, i): eqn for path, _, body in bodies(whole) for i, eqn in enumerate(body.eqns)}

    def around(block: Block) -> Block:
        *path, call = block[:-2] or (0,)
        inside = [other for other in blocks if len(other) >= len(block) and other[: len(block) - 2] == block[:-2]]
        is_alone = len(block) > 2 and len(inside) == 1 and eqns[block[:-2]].primitive.name in OPENED
        return around((*path, call, call + 1)) if is_alone else block

    return list(map(around, blocks))


def first_half(whole: AnyJaxpr, block: Block) -> Block:
    """Return the first part of a block, cut where the live bytes plus the bytes of the larger part are smallest."""
    *path, start, end = block
    body = next(body for where, _, body in bodies(whole) if where == tuple(path))
    made = [0, *itertools.accumulate(map(_bytes_made, body.eqns[start:end]))]
    last = {v: i for i, eqn in enumerate(body.eqns) for v in eqn.invars if not is_literal(v)}

    def taken(place: int) -> int:
        crossing = {v for eqn in body.eqns[start:place] for v in eqn.outvars if last.get(v, 0) >= place}
        here = made[place - start]
        return sum(nbytes(v.aval) for v in crossing) + max(here, made[-1] - here)

    return (*path, start, min(range(start + 1, end), key=taken, default=end))


def _stretches_of_calls(eqns: Sequence[Any]) -> dict[str, list[Block]]:
    """Return, for each function, the stretches of equations that its calls compute."""
    stacks = [calls_to(eqn.source_info) + _called_name(eqn) for eqn in eqns]
    names = [eqn.primitive.name for eqn in eqns]
    found: dict[str, list[Block]] = {}
    for depth in range(max(map(len, stacks), default=0)):
        end = 0
        for start, stack in enumerate(stacks):
            if start < end or len(stack) <= depth:
                continue
            above, (function, _) = stack[:depth], stack[depth]
            starts, end = [start], start + 1
            # Calls from one place follow one another, so each begins with the operation that the first one begins with.
            while end < len(eqns) and stacks[end][:depth] == above and stacks[end][depth : depth + 1]:
                if stacks[end][depth][0] != function:
                    break
                begins = names[end] == names[start] and stacks[end][depth:] == stack[depth:]
                if begins and stacks[end - 1][depth:] != stack[depth:]:
                    starts.append(end)
                end += 1
            if function not in (name for name, _ in above):  # the call is not recursive
                spans = [*itertools.pairwise([*starts, end])]
                whole = _called_once(spans, stacks, depth) and len({tuple(names[a:b]) for a, b in spans}) > 1
                found.setdefault(function, []).extend([(start, end)] if whole else _merge_loop_starts(names, spans))
    return found


def _called_once(spans: Sequence[Block], stacks: Sequence[Sequence[tuple[str, str]]], depth: int) -> bool:
    """Return whether stretches are the iterations of a loop at the start of a single call, which is then one block.

    This is assumed if the stretches cover all operations, or if the iterations consist of calls themselves.
    """
    if len(spans) == 1 or (spans[0][0] == 0 and spans[-1][1] == len(stacks)):
        return True
    looped = stacks[spans[0][0] : spans[-1][0]]
    return len({stack[depth] for stack in looped}) == 1 and all(len(stack) > depth + 1 for stack in looped)


def _merge_loop_starts(names: Sequence[str], spans: Sequence[Block]) -> Sequence[Block]:
    """Merge stretches that are the iterations of a loop in one call: their operations repeat with a longer period."""
    made = [tuple(names[start:end]) for start, end in spans]
    for each in range(2, len(spans) // 2 + 1) if len({*made}) > 1 else ():
        if len(spans) % each == 0 and made == made[:each] * (len(spans) // each):
            return [(spans[i][0], spans[i + each - 1][1]) for i in range(0, len(spans), each)]
    return spans


def _called_name(eqn: Any) -> tuple[tuple[str, str], ...]:
    """Return the function that a jit calls."""
    return ((str(eqn.params["name"]), ""),) if eqn.primitive.name == "jit" else ()


def _have_overlap(a: Block, b: Block) -> bool:
    """Whether two blocks have operations in common."""
    depth = min(len(a), len(b)) - 2
    (start, end), (first, last) = (_operations_at_depth(block, depth) for block in (a, b))
    return a[:depth] == b[:depth] and start < last and first < end


def _operations_at_depth(block: Block, depth: int) -> tuple[int, int]:
    """Return the operations at a depth that the block contains, or that contain the block."""
    return (block[depth], block[depth + 1]) if len(block) == depth + 2 else (block[depth], block[depth] + 1)


def _bytes_made(eqn: Any) -> int:
    """Return the bytes of an equation's results; for a loop, those of all iterations."""
    if eqn.primitive.name not in (*OPENED, "scan"):
        return sum(nbytes(v.aval) for v in eqn.outvars)
    iterations = jax_compat.scan_of(eqn).length if eqn.primitive.name == "scan" else 1
    return iterations * sum(_bytes_made(e) for body in jax_compat.bodies(eqn) for e in jax_compat.body_of(body)[0].eqns)

"""The operations of a recompute graph, merged into the parts between which choices differ."""

from collections.abc import Collection, Sequence

from rematscope.choices.choice_graph import Part, link
from rematscope.choices.recompute_graph import Node


def parts_of(nodes: Sequence[Node], needed: Collection[Node]) -> tuple[Part, ...]:
    """Return the parts of the recompute that depend on the choice, with nodes merged that are always reached together.

    Args:
      nodes: all that some choice reaches, in the order of the program.
      needed: what all choices reach.

    Returns:
      The parts, linked, in an order that is the same for the same program.
    """
    free = [node for node in nodes if node not in needed or node.name is not None]
    kept_anyway = {node.array for node in needed if node.kept}
    readers: dict[Node, dict[Node, None]] = {node: {} for node in free}
    for node in free:
        for read in node.reads:
            if read in readers:
                readers[read][node] = None
    into = _merge_targets(free, readers)

    parts = {node: Part(node.name, node in needed) for node in free if into[node] is node}
    for node in free:
        part = parts[into[node]]
        part.cost += node.cost
        if node.array is not None and (node.kept or node.name is not None) and node.array not in kept_anyway:
            part.arrays[node.array] = node.nbytes
        for reader in dict.fromkeys(into[reader] for reader in readers[node]):
            link(parts[reader], part)
    return tuple(parts.values())


def _merge_targets(free: Sequence[Node], readers: dict[Node, dict[Node, None]]) -> dict[Node, Node]:
    """Return for each node the one that it is merged into, or itself.

    An operation that only one other reads is reached if and only if that one is, its immediate dominator in the walk;
    so it goes with that one, unless that is a name, at which the walk may end. Operations that the same ones read go
    with each other. Each merging may allow others, so it is repeated until there are none. Dominators tell more than
    that (Lengauer and Tarjan, TOPLAS 1979); what is overlooked stays a part of its own, and no figure is wrong for it.

    Args:
      free: what depends on the choice. Names are never merged.
      readers: what reads each of them, in order; those of merged nodes are added to what they are merged into.
    """
    merged = {node: node for node in free}

    def into(node: Node) -> Node:
        while merged[node] is not node:
            node = merged[node]
        return node

    changed = True
    while changed:
        changed = False
        alike: dict[frozenset[Node], Node] = {}
        for node in reversed(free):
            if node.name is not None or merged[node] is not node:
                continue
            by = frozenset(map(into, readers[node])) - {node}
            other = next(iter(by)) if len(by) == 1 and next(iter(by)).name is None else alike.setdefault(by, node)
            if other is not node:
                merged[node] = other
                readers[other] |= readers[node]
                changed = True
    return {node: into(node) for node in free}

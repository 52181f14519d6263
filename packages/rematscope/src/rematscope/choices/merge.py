"""The operations of a recompute graph, merged into the parts between which choices differ."""

from collections.abc import Collection, Sequence

from rematscope.choices.choice_graph import Part, link
from rematscope.choices.recompute_graph import Node


def parts_of(nodes: Sequence[Node], needed: Collection[Node]) -> tuple[Part, ...]:
    """Return the parts of the recompute that depend on the choice, with nodes merged that are always reached together.

    Args:
      nodes: the nodes that some choice reaches, in program order.
      needed: the nodes that all choices reach.

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
    """Return for each node the node that it is merged into, or itself.

    An operation with one reader, its immediate dominator in the walk, is reached if and only if the reader is. So it is
    merged into the reader, unless that is a name, at which the walk may end. Operations with the same readers are
    merged with each other. This is repeated until nothing changes. A full dominator analysis (Lengauer and Tarjan,
    TOPLAS 1979) would merge more nodes, with the same figures.

    Args:
      free: the nodes that depend on the choice. Names are never merged.
      readers: the readers of each of them, in order; a merged node's readers are added to its target's.
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

"""The buffers at the peak as a tree: module, layer, operation, line."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

from rematscope.reporting.contents import Buffer

_FIXED = ("parameters", "optimizer state", "arguments", "outputs")


@dataclasses.dataclass
class Node:
    """A part of the memory at the peak.

    Attributes:
      name: the last part of its path.
      nbytes: its bytes.
      bytes_by_kind: its bytes of each kind of buffer.
      count: the number of buffers in it.
      about: a description of a single buffer: its type, kind and source line.
      children: its parts, the largest first.
    """

    name: str
    nbytes: int = 0
    bytes_by_kind: Counter[str] = dataclasses.field(default_factory=Counter)
    count: int = 0
    about: str = ""
    children: dict[str, "Node"] = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of most of its bytes."""
        return max(self.bytes_by_kind, key=self.bytes_by_kind.__getitem__, default="")

    def walk(self, start: int = 0, depth: int = 0) -> Iterator[tuple["Node", int, int]]:
        """Yield each node with the bytes before it and its depth, a parent before its children."""
        yield self, start, depth
        for child in self.children.values():
            yield from child.walk(start, depth + 1)
            start += child.nbytes


def tree_of(buffers: Iterable[Buffer], most: int = 4000) -> Node:
    """Return the buffers as a tree, with at most about so many nodes: the smallest are summed up."""
    root = Node("peak")
    for buffer in buffers:
        _add_buffer(root, buffer)
    _sort_children(root)
    nodes = sorted((node.nbytes for node, _, _ in root.walk()), reverse=True)
    if len(nodes) > most:
        _merge_small_nodes(root, nodes[most])
    return root


def _path_of(buffer: Buffer) -> list[str]:
    if buffer.kind in _FIXED:
        return [buffer.kind, *buffer.module]
    line = buffer.source.rpartition(" → ")[0] or buffer.source
    return [*buffer.module, buffer.operation or buffer.name, *([line] if line else [])]


def _add_buffer(root: Node, buffer: Buffer) -> None:
    node, times = root, f", stacked by {buffer.times} iterations" if buffer.times > 1 else ""
    about = f"{buffer.type} {buffer.kind}{times}" + (f", {buffer.source}" if buffer.source else "")
    path = _path_of(buffer)
    for name in (None, *path):
        if name is not None:
            node = node.children.setdefault(name, Node(name))
        node.nbytes += buffer.nbytes
        node.bytes_by_kind[buffer.kind] += buffer.nbytes
        node.count += 1
    node.about = about if node.count == 1 else f"{node.about.partition(' and ')[0]} and {node.count - 1} more"


def _sort_children(node: Node) -> None:
    for child in node.children.values():
        _sort_children(child)
    node.children = {c.name: c for c in sorted(node.children.values(), key=lambda c: -c.nbytes)}


def _merge_small_nodes(node: Node, least: int) -> None:
    kept = {name: child for name, child in node.children.items() if child.nbytes > least}
    rest = [child for child in node.children.values() if child.nbytes <= least]
    if rest and node.children:
        total, count = sum(c.nbytes for c in rest), sum(c.count for c in rest)
        by_kind = sum((c.bytes_by_kind for c in rest), Counter[str]())
        kept["smaller buffers"] = Node("smaller buffers", total, by_kind, count, f"{count} buffers")
    node.children = kept
    for child in kept.values():
        _merge_small_nodes(child, least)

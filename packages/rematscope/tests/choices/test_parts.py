"""Merging what is reached together changes no figure, on graphs that no function has to have."""

import random

import pytest

from rematscope.choices.choice_graph import ChoiceGraph, dependencies_of
from rematscope.choices.merge import parts_of
from rematscope.choices.recompute_graph import Node
from rematscope.ir.program import Value


def chain(*names):
    """Return a chain of nodes. A node with a name takes 4 bytes if it is saved."""
    nodes = []
    for name in names:
        array = None if name is None else Value(None, name)
        nodes.append(Node(nodes[-1:], cost=0 if name else 1, name=name, array=array, nbytes=4 if name else 0))
    return nodes


def test_a_walk_ends_at_a_saved_name_and_reaches_it():
    first, a, second, b, third = chain(None, "a", None, "b", None)
    assert dependencies_of([third], {"a"}) == {third, b, second, a}
    assert dependencies_of([third], {"a", "b"}) == {third, b}
    assert dependencies_of([third], {"c"}) == {first, a, second, b, third}


def test_a_walk_through_a_loop_ends():
    carry, body = Node(), Node()
    carry.reads, body.reads = [body], [carry]
    assert dependencies_of([body], ()) == {carry, body}


def test_operations_between_two_names_are_one_part():
    _, a, *_, b = nodes = chain(None, "a", None, None, "b")
    parts = parts_of(nodes, [b])
    assert [(part.name, part.entry, part.cost) for part in parts] == [
        (None, False, 1), ("a", False, 0), (None, False, 2), ("b", True, 0)
    ]  # fmt: skip
    before, named, between, entry = parts
    assert entry.reads == [between] and between.reads == [named] and named.reads == [before] and before.reads == []
    assert between.readers == [entry] and named.arrays == {a.array: 4}


def test_operations_that_two_names_read_belong_to_neither_part():
    (shared,), left, right = chain(None), *chain("a", "b")
    left.reads, right.reads = [shared], [shared]
    assert [part.name for part in parts_of([shared, left, right], [left, right])] == [None, "a", "b"]


def test_names_that_the_same_operations_read_form_one_part():
    first, second = Node(cost=1), Node(cost=10)
    (a,), (b,) = chain("a"), chain("b")
    a.reads, b.reads = [first, second], [second, first]
    assert [part.cost for part in parts_of([first, second, a, b], [a, b])] == [11, 0, 0]


@pytest.mark.parametrize("seed", range(100))
def test_merging_changes_no_figure(seed):
    rng = random.Random(seed)
    nodes: list[Node] = []
    for i in range(rng.randrange(3, 25)):
        kind = rng.choice(["operation", "operation", "name", "residual"])
        node = Node(rng.sample(nodes, min(len(nodes), rng.choice([0, 1, 1, 2, 3]))))
        if kind == "operation":
            node.cost = rng.randrange(10)
        else:
            node.array, node.nbytes, node.kept = Value(None, str(i)), rng.randrange(1, 9), kind == "residual"
            node.name = rng.choice("abcd") if kind == "name" else None
        nodes.append(node)
    for node in rng.sample(nodes, len(nodes) // 8):  # as a loop's carry reads what the iteration before made
        node.reads = list(dict.fromkeys([*node.reads, rng.choice(nodes)]))
    roots = rng.sample(nodes, rng.randrange(1, 4))
    everything = dependencies_of(roots, ())
    names = tuple(sorted({node.name for node in everything} - {None}))
    needed = dependencies_of(roots, names)
    graph = ChoiceGraph(
        names=names,
        parts=parts_of([node for node in nodes if node in everything], needed),
        least_bytes=sum(node.nbytes for node in needed if node.kept),
        least_cost=sum(node.cost for node in needed),
    )
    for choice in range(2 ** len(names)):
        saved = {name for i, name in enumerate(names) if choice >> i & 1}
        here = dependencies_of(roots, saved)
        kept = sum(node.nbytes for node in here if node.kept or node.name in saved)
        assert graph.evaluate(saved) == (kept, sum(node.cost for node in here)), saved
        assert set(graph.helpful(saved)) == {node.name for node in here} & saved

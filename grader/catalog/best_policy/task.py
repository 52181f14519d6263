"""What an answer is asked."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.spec import Integers, OneOf, Question
from rematscope import recompute_graph
from rematscope.extend import ChoiceGraph, Part, best_points, every_choice, link

ranges = {"names": Integers(1, 11), "fits": OneOf(("nothing else", "some names", "every name"))}
signature = "best_policy(block, budget_bytes)"
returns = "a list of names"

_NAMES = ("up", "Up", "up 1", "up 2", "up 11", "down", "mid", "gate", "norm", "out", "query", "key", "value")


def cases(rng):
    """Return two traced blocks with random widths, and about fifty random graphs.

    Half of the graphs hide the best choice: each of its names avoids little alone, but together they avoid much,
    so that a search that improves a choice name by name, or by pairs, ends with another one.
    """
    unit = int(rng.integers(2, 5))

    def block(f, rows, *shapes):
        shapes = ((rows,), *shapes)
        (tokens,), *weights = [tuple(unit * n for n in shape) for shape in shapes]
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((tokens, weights[0][0]), *weights)]
        graph = recompute_graph(f, *arrays)
        return graph, graph.evaluate(graph.names)[0] - graph.least_bytes

    stream, most = block(_stream, 7, (15, 15), (15, 15), (15, 14), (14, 15), (15, 18))
    mixed, more = block(_mixed, 10, (6, 4), (6, 4), (6, 8), (8, 6), (6, 18), (6, 18), (18, 6))
    asked = [
        ("two layers in a stream", stream, stream.least_bytes + most * 74 // 100, "some names"),
        ("attention, then a gated layer", mixed, mixed.least_bytes + more * 38 // 100, "some names"),
        ("two layers, every name fits", stream, stream.least_bytes + most, "every name"),
        ("two layers, no name fits", stream, stream.least_bytes, "nothing else"),
    ]
    for n in (1, *rng.integers(2, 8, 3)):
        graph = _random_graph(rng, n)
        name = "name" if n == 1 else "names"
        asked.append((f"{n} random {name}, no name fits", graph, graph.least_bytes, "nothing else"))
        asked.append((f"{n} random {name}, every name fits", graph, graph.evaluate(graph.names)[0], "every name"))
    for n in (*rng.integers(3, 7, 8), *rng.integers(7, 9, 3), 9):
        graph = _random_graph(rng, n)
        kept = [int(nbytes) for nbytes in _pareto_bytes(graph)[1:-1]]
        for nbytes in (kept[-1], kept[int(rng.integers(len(kept)))] + 1) if kept else ():
            asked.append((f"{n} random names, {nbytes:,} bytes", graph, nbytes, "some names"))
    for n in (*rng.integers(4, 7, 3), *rng.integers(7, 9, 8), 9, 9, 11):
        graph, nbytes = _hidden_savings(rng, n)
        asked.append((f"{n} random names, {nbytes:,} bytes", graph, nbytes, "some names"))
    twice = _named_twice(rng)
    asked.append(("a value with two names, both fit", twice, twice.evaluate(twice.names)[0], "every name"))
    questions = (
        Question(name, (graph, nbytes), structure={"names": len(graph.names), "fits": fits})
        for name, graph, nbytes, fits in sorted(asked, key=lambda each: len(each[1].names))
    )
    return tuple({question.name: question for question in questions}.values())


def fits(structure):
    """Return whether there is a choice between none and all of the names. With one or two names, there may be none."""
    return structure["names"] > 2 or structure["fits"] != "some names"


def case(rng, names, fits):
    """Return a question on a random graph with a number of names, of which none, some or all fit."""
    graph, nbytes = _hidden_savings(rng, names) if fits == "some names" else (_random_graph(rng, names), None)
    if nbytes is None:
        nbytes = graph.least_bytes if fits == "nothing else" else graph.evaluate(graph.names)[0]
    return Question(
        f"{names} random name{'s' * (names > 1)}, {nbytes:,} bytes",
        (graph, nbytes),
        structure={"names": names, "fits": fits},
    )


def _pareto_bytes(graph) -> np.ndarray:
    """Return the bytes of the Pareto-optimal choices, in increasing order."""
    nbytes, costs = every_choice(graph)
    return nbytes[list(best_points(nbytes, costs))]


def _random_graph(rng, n) -> ChoiceGraph:
    """Draw a graph with groups of one to five names. The names of a group are computed from one shared value, which may
    have a name and depend on another name. The backward pass reads every name but the shared ones."""
    names: list[Part] = []
    parts: list[Part] = []
    left = 0
    while len(names) < n:
        if left == 0:
            left = int(rng.integers(1, 6))
            before = [names[i] for i in rng.permutation(len(names))[: rng.integers(0, 2)]]
            shared = _make_graph(parts, rng.integers(50, 1000), before)
            if rng.random() < 0.6 and n - len(names) > left:
                shared = _named_part(parts, names, rng.integers(2, 40), shared, entry=False)
        _named_part(parts, names, rng.integers(2, 40), _make_graph(parts, rng.integers(1, 100), [shared]), entry=True)
        left -= 1
    return _graph_of(rng, parts, names)


def _hidden_savings(rng, n) -> tuple[ChoiceGraph, int]:
    """Draw a graph and a budget for about half of its names, which avoid a large cost only if all of them are saved.
    Each of the other names avoids more alone."""
    together = int(rng.integers(max(2, n // 2 - 1), n // 2 + 2))
    sizes = rng.integers(2, 13, n)
    members = {n - 1, *map(int, rng.permutation(n - 1)[: together - 1])}  # a search of the first names misses one
    costs = [int(rng.integers(1, 20) if i in members else rng.integers(30, 100)) for i in range(n)]
    others = sum(cost for i, cost in enumerate(costs) if i not in members)
    names: list[Part] = []
    parts: list[Part] = []
    shared = _make_graph(parts, others * rng.uniform(0.6, 1.5) + 1, [])
    for i in range(n):
        _named_part(parts, names, sizes[i], _make_graph(parts, costs[i], [shared] if i in members else []), entry=True)
    graph = _graph_of(rng, parts, names)
    return graph, graph.least_bytes + 8 * int(sum(sizes[i] for i in members))


def _named_twice(rng) -> ChoiceGraph:
    """Draw a graph in which one value has two names: if one of them is saved, the other is idle."""
    names: list[Part] = []
    parts: list[Part] = []
    size = rng.integers(2, 40)
    first = _named_part(parts, names, size, _make_graph(parts, rng.integers(50, 1000), []), entry=False)
    _named_part(parts, names, size, first, entry=True)
    _named_part(parts, names, rng.integers(2, 40), _make_graph(parts, rng.integers(1, 100), []), entry=True)
    return _graph_of(rng, parts, names)


def _make_graph(parts, cost, reads) -> Part:
    parts.append(made := Part(cost=int(cost)))
    for read in reads:
        link(made, read)
    return made


def _named_part(parts, names, size, read, entry) -> Part:
    named = Part(name=str(len(names)), entry=entry, arrays={len(names): 8 * int(size)})
    link(named, read)
    parts.append(named)
    names.append(named)
    return named


def _graph_of(rng, parts, names) -> ChoiceGraph:
    for part, word in zip(names, rng.permutation(len(_NAMES)), strict=False):
        part.name = _NAMES[word]
    least_bytes, least_cost = 8 * int(rng.integers(0, 50)), int(rng.integers(0, 500))
    return ChoiceGraph(
        names=tuple(part.name for part in names), parts=tuple(parts), least_bytes=least_bytes, least_cost=least_cost
    )


def _stream(x, a, b, c, d, e):
    up = checkpoint_name(x @ a, "up 1")
    out = checkpoint_name(jnp.sin(up) @ b, "out 1")
    stream = checkpoint_name(x + out, "stream 1")
    up = checkpoint_name(jnp.sin(stream) @ c, "up 2")
    out = checkpoint_name(jnp.sin(up) @ d, "out 2")
    stream = checkpoint_name(stream + out, "stream 2")
    return jnp.sin(jnp.sin(stream) @ e)


def _mixed(x, wq, wk, wv, wo, wg, wu, wd):
    q, k, v = (checkpoint_name(x @ w, n) for w, n in ((wq, "query"), (wk, "key"), (wv, "value")))
    logits = checkpoint_name(q @ k.T, "logits")
    weights = checkpoint_name(jax.nn.softmax(logits), "weights")
    context = checkpoint_name(weights @ v, "context")
    y = x + checkpoint_name(context @ wo, "out")
    norm = checkpoint_name(jnp.tanh(y), "norm")
    gate, up = checkpoint_name(norm @ wg, "gate"), checkpoint_name(norm @ wu, "up")
    hidden = checkpoint_name(jax.nn.silu(gate) * up, "hidden")
    return y + checkpoint_name(hidden @ wd, "down")


shown = None

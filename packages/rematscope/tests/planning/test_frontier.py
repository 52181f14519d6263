"""The trade-off between saved bytes and recompute: complete, equal by enumeration and solver, and equal to traces."""

import itertools
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import array
from jax.ad_checkpoint import checkpoint_name
from matplotlib.figure import Figure

from rematscope import cost_of, frontier, trace
from rematscope.choices import enumeration
from rematscope.choices.build import CostedCall
from rematscope.choices.candidates import candidates
from rematscope.choices.chooser import Chooser
from rematscope.planning.frontier import Frontier, SavedNamesMatrix
from rematscope.planning.points import Point


def block(x, w, u):
    """Names of different worth: `p` is of little use, `o` of none, `q` and `k` are worth most together."""
    q, k = checkpoint_name(jnp.sin(x @ w), "q"), checkpoint_name(jnp.tanh(x @ w.T), "k")
    scores = checkpoint_name(q @ k.T, "scores")
    p = checkpoint_name(jax.nn.softmax(scores), "p")
    h = checkpoint_name(jnp.sin(p @ x) @ u, "h")
    return checkpoint_name(jnp.sin(h) @ u.T, "o").sum()


ARGS = array(16, 8), array(8, 8), array(8, 24)


@pytest.fixture(scope="module")
def trade():
    return frontier(block, *ARGS)


def pareto_front(choices):
    """By definition, no other choice saves and recomputes at most as much."""
    return sorted({c for c in choices if not any(o != c and o[0] <= c[0] and o[1] <= c[1] for o in choices)})


def subsets(names):
    return itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(len(names) + 1))


def places(points):
    return [(point.nbytes, point.cost) for point in points]


def saving(*names, beside="nothing_saveable"):
    policies = jax.checkpoint_policies
    both = policies.save_from_both_policies(getattr(policies, beside), policies.save_only_these_names(*names))
    return jax.checkpoint(block, policy=both)


def test_the_points_are_the_choices_that_none_beats(trade):
    compared = {candidate.label: candidate.graph for candidate in candidates(CostedCall(block, ARGS, {}))}
    choices = [graph.evaluate(names) for graph in compared.values() for names in subsets(graph.names)]
    assert places(trade.points) == pareto_front(choices)
    assert len(trade.points) > 5 and trade.complete and len({point.with_policy for point in trade.points}) > 1
    assert [compared[point.with_policy].evaluate(point.names) for point in trade.points] == places(trade.points)


def test_points_and_policies_agree_with_traces_of_jax(trade):
    policies = {point.label: getattr(jax.checkpoint_policies, point.label) for point in trade.presets}
    assert list(policies) == [
        "nothing_saveable", "dots_with_no_batch_dims_saveable", "dots_saveable", "everything_saveable",
    ]  # fmt: skip
    made = [(point, jax.checkpoint(block, policy=policies[point.label])) for point in trade.presets]
    made += [
        (point, saving(*point.names, beside=point.with_policy or "nothing_saveable")) for point in trade.points[1::3]
    ]
    for point, function in made:
        passes = trace(function, *ARGS)
        again = passes.recompute_cost.flops + passes.recompute_cost.transcendentals
        assert (point.nbytes, point.cost) == (passes.bytes_by_kind().get("computed", 0), again), point


@pytest.mark.parametrize("cost", [None, lambda equation: cost_of(equation).bytes / 1e7], ids=["FLOPs", "floats"])
def test_the_solver_finds_the_points_that_enumeration_finds(monkeypatch, trade, cost):
    how = {"cost": cost} if cost else {}
    enumerated = frontier(block, *ARGS, **how) if cost else trade
    monkeypatch.setattr(enumeration, "FEW", 2)
    solved = frontier(block, *ARGS, **how)
    assert [point.nbytes for point in solved.points] == [point.nbytes for point in enumerated.points]
    np.testing.assert_allclose([p.cost for p in solved.points], [p.cost for p in enumerated.points], rtol=1e-9)


@pytest.mark.slow
def test_points_found_before_an_interruption_are_returned(monkeypatch, trade):
    monkeypatch.setattr(enumeration, "FEW", 2)
    solved = itertools.count()

    def cheapest(chooser, budget, original=Chooser.cheapest):
        if next(solved) == 3:
            raise KeyboardInterrupt
        return original(chooser, budget)

    monkeypatch.setattr(Chooser, "cheapest", cheapest)
    found = frontier(block, *ARGS)
    assert not found.complete and "interrupted" in str(found)
    assert places(found.points) and set(places(found.points)) < set(places(trade.points))
    monkeypatch.setattr(Chooser, "cheapest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        frontier(block, *ARGS)


@pytest.mark.slow
def test_a_bar_appears_when_it_takes_long(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    frontier(block, *ARGS)
    assert capsys.readouterr() == ("", "")
    clock = itertools.count(step=2)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    frontier(block, *ARGS)
    printed = capsys.readouterr()
    assert "points" in printed.err and printed.out == ""


def test_greedy_is_never_better():
    """A name of 6 columns avoids the most recompute per byte. In a budget of 10, two names of 5 columns are better."""

    def apart(x, a, b, c):
        products = [checkpoint_name(x[:, : w.shape[0]] @ w, name) for w, name in zip((a, b, c), "abc", strict=True)]
        return sum(jnp.sin(product).sum() for product in products)

    found = frontier(apart, array(4, 9), array(9, 6), array(8, 5), array(8, 5))
    assert list(found.greedy) == [point.nbytes for point in found.points]
    for budget, point in found.greedy.items():
        assert point.nbytes <= budget and found.graph.evaluate(point.names) == (point.nbytes, point.cost)
        more = [found.graph.evaluate([*point.names, name]) for name in found.graph.names]
        assert not any(nbytes <= budget and cost < point.cost for nbytes, cost in more), "it stops when nothing fits"
    behind = {budget: point.cost - found.within(budget).cost for budget, point in found.greedy.items()}
    assert min(behind.values()) == 0 and behind[10 * 4 * 4] == 2 * 4 * (2 * 8 * 5 - 9 * 6)
    assert "greedy within 160 B" in str(found)


def test_the_functions_own_policy_is_shown_next_to_the_points(trade):
    assert trade.current is None
    assert frontier(jax.checkpoint(block), *ARGS).current is None
    found = frontier(saving("scores", "p"), *ARGS)
    assert found.current.names == ("scores", "p")
    assert (found.current.nbytes, found.current.cost) == trade.graph.evaluate(["scores", "p"])
    assert places(found.points) == places(trade.points)
    assert "block as written" in str(found)


def test_the_text_lists_every_point_with_its_names(trade):
    table, others, matrix = str(trade).split("\n\n")
    rows = table.splitlines()[2:-1]
    assert len(rows) == len(trade.points) and rows[0].split()[:3] == ["1", "0", "B"]
    for row, point in zip(rows, trade.points, strict=True):
        names = row.split("  ")[-1].rpartition(" + ")[2]
        left_out = names.removeprefix("all names but ").split(", ")
        all_but = [name for name in trade.graph.names if name not in left_out]
        listed = {"": [], "all names": trade.graph.names}.get(names, all_but if "but" in names else names.split(", "))
        assert point.names in (tuple(listed), ()), row
    counted = f"block: {len(trade.points)} points on the Pareto front of its 5 names and of policies"
    assert table.splitlines()[-1] == counted
    assert [line.split()[0] for line in others.splitlines()[2:6]] == [point.label for point in trade.presets]
    lines = matrix.splitlines()[1:-1]
    for name in trade.graph.names:
        (marks,) = (line.split()[-1] for line in lines if name in line.replace(",", "").split()[:-1])
        assert [mark == "■" for mark in marks] == [name in point.names for point in trade.points]


def test_a_long_frontier_is_folded_and_says_so(trade):
    points = [Point(i, 1000 - i, ("a", "b") if i % 2 else ("c",)) for i in range(1000)]
    graph = trade.graph
    found = Frontier(graph, tuple(points), trade.presets, {}, None, True)
    assert "20 are shown, .points has all" in " ".join(str(found).split())
    matrix = SavedNamesMatrix(("a", "b", "c", "d"), points)
    assert "72 of 1000 choices" in str(matrix) and len(matrix.rows["a"]) == 1000
    assert str(matrix).splitlines()[1].startswith("a, b  ·"), "names that are always saved together share a row"
    assert "500 of 1000 choices" in matrix._repr_mimebundle_()["text/html"]


def test_a_notebook_is_shown_a_picture_and_its_numbers(trade):
    shown = trade._repr_mimebundle_()
    assert re.search(
        r'<img [^>]*src="data:image/png;base64,iVBOR[^"]+"[^>]* alt="block: \d+ points', shown["text/html"]
    )
    assert shown["text/plain"] == str(trade) and shown["text/html"].count("<table") == 3


def test_plot_has_every_point(trade):
    ax = Figure().subplots()
    trade.plot(ax)
    scale = trade.points[-1].nbytes / ax.get_lines()[1].get_xdata()[-1]
    assert scale == 1024 and ax.get_xlabel() == "saved (KiB)"
    drawn = [(x * scale, y) for line in ax.get_lines()[1:] for x, y in line.get_xydata()]
    assert len(drawn) == len(trade.points) + len(trade.labelled)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["best choices", "greedy", *(point.label for point in trade.presets)]

"""Several ways in one table, and a view as a page of its own."""

import re

import jax
import jax.numpy as jnp
import meshes
import pytest

from rematscope import SideBySide, compare, liveness, trace
from rematscope.render.units import bytes_text


def f(w, x):
    return jnp.sin(jnp.sin(w @ x)).sum()


ARGS = jnp.ones((5, 4)), jnp.ones(4)
WAYS = {"plain": f, "checkpoint": jax.checkpoint(f), "<b>": jax.checkpoint(f, policy=lambda *_, **__: True)}


def test_a_row_has_the_figures_of_trace_and_liveness():
    found = compare(WAYS, *ARGS)
    assert [row.label for row in found.rows] == list(WAYS)
    for label, way in WAYS.items():
        passes, row = trace(way, *ARGS), found[label]
        assert row.saved_bytes == passes.bytes_by_kind()["computed"]
        assert (row.recompute_cost, row.deferred_cost) == (passes.recompute_cost, passes.deferred_cost)
        assert row.peak_bytes == liveness(way, *ARGS).peak_bytes
    assert found["plain"].saved_bytes > found["checkpoint"].saved_bytes == 0
    assert found["checkpoint"].recompute_cost.flops == 2 * 5 * 4
    with pytest.raises(KeyError):
        found["another"]


def test_it_shows_each_way_and_escapes_labels():
    found = compare(WAYS, *ARGS)
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[3:6]] == list(WAYS)
    assert "<b>" not in found.html() and "&lt;b&gt;" in found.html()


def test_each_column_of_a_cost_has_one_unit():
    header, *rows = compare(WAYS, *ARGS).cells()
    recomputed, transcendentals = header.index("Recomputed\nFLOPs"), header.index("Deferred\ntransc.")
    assert [row[recomputed] for row in rows] == ["0", "40", "0"]
    assert rows[1][transcendentals] == "10", "the two cosines are computed in the backward pass alone"


def layer(w, x):
    return jnp.sin(jnp.sin(x @ w))


def layers(layer, depth):
    def model(w, x):
        for _ in range(depth):
            x = layer(w, x)
        return x

    return model


LAYER_ARGS = jnp.ones((4, 4)), jnp.ones((64, 4))


def test_a_column_that_is_equal_in_every_row_is_said_once():
    found = compare({"no checkpoint": layer, "checkpoint": jax.checkpoint(layer)}, *LAYER_ARGS)
    header, *rows = found.cells()
    assert [title for title in header if title.startswith(("Deferred", "Peak"))] == ["Deferred\ntransc."]
    assert all(len({*column}) > 1 for column in zip(*rows, strict=True))
    peak = bytes_text(found["checkpoint"].peak_bytes)
    for shown in (" ".join(str(found).split()), found.html()):
        assert f"Equal in every row: Deferred FLOPs = 0, Peak (est.) = {peak}. " in shown
        assert "recomputed and deferred values take the place" in shown


def test_equal_saved_bytes_remain_a_column():
    found = compare({"one": layer, "same": layer}, *LAYER_ARGS, device="h100")
    header, *rows = found.cells()
    assert header == ["", "Saved"] and rows[0][1] == rows[1][1] != "0 B"
    shown = " ".join(str(found).split())
    assert "Recomputed FLOPs = 0, Recompute time = 0 s, Share of time = 0 %, Deferred FLOPs = 0, Peak" in shown
    assert "take the place" not in shown, "nothing is recomputed"


def test_columns_that_differ_and_the_columns_of_a_single_row_remain():
    variants = {"no checkpoint": layers(layer, 3), "checkpoint": layers(jax.checkpoint(layer), 3)}
    for shown in (variants, {"alone": layer}):
        found = compare(shown, *LAYER_ARGS)
        title, *peaks = [cells[-1] for cells in found.cells()]
        assert (title, peaks) == ("Peak (est.)", [bytes_text(row.peak_bytes) for row in found.rows])
        assert ("Deferred\nFLOPs" in found.cells()[0]) == (len(shown) == 1)


def test_a_saved_page_is_self_contained_in_either_theme(tmp_path):
    page = tmp_path / "view.html"
    view = SideBySide(trace(f, *ARGS))
    view.save(page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and "prefers-color-scheme: dark" in text
    assert "jp-theme" not in text and not re.search(r"(src|href)=.(?!data:)|@import|url\(", text)
    assert all(line.strip() in text for line in ("sin(a)", "recomputes", "return dx"))
    view.save(page)
    assert page.read_text(encoding="utf-8") == text and list(tmp_path.iterdir()) == [page]


def test_a_saved_timeline_has_its_picture_and_its_words(tmp_path):
    page = tmp_path / "view.html"
    liveness(f, *ARGS).save(page)
    found = re.search(
        r'<img [^>]*src="data:image/png;base64,[^"]+" [^>]*alt="([^"]+)"', page.read_text(encoding="utf-8")
    )
    assert found and "bytes" in found[1]


def test_it_says_that_shardings_which_the_compiler_decides_are_estimates():
    over = meshes.mesh(data=4)
    x, w = meshes.like(over, "data", shape=(64, 16)), meshes.like(over, shape=(16, 16))
    assert "is an estimate, the compiler decides" in " ".join(
        str(compare({"": lambda w, x: jnp.sin(x @ w)}, w, x)).split()
    )
    assert "estimate" not in str(compare({"": lambda w, x: jnp.sin(x @ w)}, jnp.ones((16, 16)), jnp.ones((64, 16))))

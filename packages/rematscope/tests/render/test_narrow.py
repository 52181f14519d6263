"""In a narrow terminal, a table stays a table with whole numbers and source lines."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from rematscope import compare, residual_table
from rematscope.render.parts import TextTable
from rematscope.render.view import plain_text
from rematscope.seconds.devices import device_called
from rematscope.views.residual_table import ResidualTable


def attention_scores_of_all_heads(parameters, x):
    y = checkpoint_name(jnp.sin(x @ parameters["layers"][0]["attention"]["kernel"]), "probabilities")
    return jnp.sum(y**2 * 0.7978845608028654) * np.float32(1 / 3)


@pytest.fixture(scope="module")
def table():
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    return residual_table(attention_scores_of_all_heads, {"layers": [{"attention": {"kernel": x}}]}, x)


@pytest.mark.parametrize("width", [160, 120, 100, 80])
@pytest.mark.parametrize("device", [None, "h100"])
def test_each_residual_is_a_row_with_its_line_and_whole_numbers(table, width, device):
    table = ResidualTable(table.trace, device and device_called(device))
    text = plain_text(table, width).splitlines()
    assert max(map(len, text)) <= width
    header = table.cells()[0]
    shown = [title for title in header if title in text[0]]
    assert shown[:3] == ["Residual", "Type", "Bytes"] and "Line" in shown
    for row in table.rows:
        place = row.source.split(" (")[0]
        assert any(re.search(rf" {row.nbytes} B ", line) and place in line for line in text)
        assert row.kind != "computed" or re.search(r"test_narrow\.py:\d+$", place)
    left_out = [line for line in text if line.startswith("Not shown at this width")]
    assert bool(left_out) == (shown != header)


@pytest.mark.parametrize("width", [100, 80, 60])
def test_a_stacked_type_is_not_broken(width):
    def layers(ws, x):
        return jnp.sum(jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0])

    shapes = (64, 1024, 1024), (128, 1024, 1024)
    table = residual_table(layers, *(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes))
    text = plain_text(table, width)
    assert max(map(len, text.splitlines())) <= width
    assert all(f" {row.type} " in text for row in table.rows)


@pytest.mark.parametrize("width", [160, 120, 100, 80])
def test_a_comparison_wraps_no_number(table, width):
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    args = {"layers": [{"attention": {"kernel": x}}]}, x
    f = attention_scores_of_all_heads
    found = compare({"no checkpoint": f, "one checkpoint around all": jax.checkpoint(f)}, *args, device="h100")
    lines = plain_text(found, width).splitlines()
    assert max(map(len, lines)) <= width
    for label, saved, *_, peak in found.cells()[1:]:
        assert any(label.split()[0] in line and f" {saved} " in line and line.endswith(f" {peak}") for line in lines)


def test_constants_are_as_short_as_their_dtype_has_them(table):
    assert "0.7978846" in plain_text(table, 80) and "0.79788458" not in repr(table)


def test_extra_columns_are_left_out_before_a_line_wraps_and_optional_ones_before_a_number_does():
    rows = [["one", "two", "three"], ["1,000,000", "some words", "more words"]]
    table = TextTable(rows, numeric=["one"], extra=["three"], optional=["two"])
    titles = [plain_text(table, width).splitlines()[0].split() for width in (33, 32, 17, 15)]
    assert titles == [["one", "two", "three"], ["one", "two"], ["one", "two"], ["one"]]
    assert "Not shown at this width: three, two" in plain_text(table, 15).replace("\n", " ")


def test_a_view_printed_to_a_narrow_terminal_is_as_narrow(table, monkeypatch):
    """Elsewhere, as in a notebook's stored text, the width does not depend on the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    wide = repr(table)
    assert wide == plain_text(table, 100) != plain_text(table, 60)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert repr(table) == plain_text(table, 60)
    monkeypatch.setenv("COLUMNS", "200")
    assert repr(table) == wide

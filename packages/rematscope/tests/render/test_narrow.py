"""What a table says in a narrow terminal: whole words and numbers, and the figures of each row together."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from rematscope import residual_table
from rematscope.render.parts import Records, TextTable
from rematscope.render.view import plain_text


def attention_scores_of_all_heads(parameters, x):
    y = checkpoint_name(jnp.sin(x @ parameters["layers"][0]["attention"]["kernel"]), "probabilities")
    return jnp.sum(y**2 * 0.7978845608028654) * np.float32(1 / 3)


@pytest.fixture(scope="module")
def table():
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    return residual_table(attention_scores_of_all_heads, {"layers": [{"attention": {"kernel": x}}]}, x)


@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_no_word_and_no_number_is_broken(table, width):
    text = plain_text(table, width)
    assert max(map(len, text.splitlines())) <= width
    words = {word for row in table.cells()[1:] for cell in row for word in re.split(r"\s|(?<=\w)(?=\.\D)", cell)}
    words = {re.sub(r"^(.+\.py).*", r"\1", word) for word in words if not re.match(r"\(.*\)$", word)}
    assert not {word for word in words if word not in text}


def test_a_table_stays_one_at_80_columns(table):
    lines = plain_text(table, 80).splitlines()
    assert lines[0].split()[:2] == ["Residual", "Type"] and "test_narrow.py:" in lines[2]
    assert "(attention_scores" not in lines[2] and "(attention_scores_of_all_heads)" in plain_text(table, 140)


def test_constants_are_as_short_as_their_dtype_has_them(table):
    assert "0.7978846" in plain_text(table, 80) and "0.79788458" not in repr(table)


def test_a_row_that_has_no_room_for_columns_has_its_titles():
    rows = [["one", "two", "three"], ["a" * 20, "", "b" * 20]]
    assert TextTable(rows).fits(48) and not TextTable(rows).fits(46)
    assert plain_text(Records(rows, "all"), 30).splitlines() == ["a" * 20, f"  three {'b' * 20}", "all"]

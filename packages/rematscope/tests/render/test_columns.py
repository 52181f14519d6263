"""Columns of numbers have one unit, and bars for magnitudes where there is space for them."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rematscope.render.parts import TextTable
from rematscope.render.units import amount_texts, bar_text

SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


@pytest.mark.slow
@given(st.lists(st.integers(0, 2**44), min_size=1))
def test_a_column_has_one_unit_and_three_digits(counts):
    parts = [text.replace(",", "").partition(" ") for text in amount_texts(counts)]
    assert [float(number) * SIZES[unit] for number, _, unit in parts] == pytest.approx(counts, rel=5.1e-3)
    largest = SIZES[parts[counts.index(max(counts))][2]]
    least = max(1000, largest / 1000)
    assert {SIZES[unit] for (*_, unit), n in zip(parts, counts, strict=True) if n >= least} <= {largest}


def test_an_amount_too_small_for_the_columns_unit_keeps_its_own_unit():
    assert amount_texts([12, 2_170_000_000, 18_900_000, 0]) == ["12", "2.17 G", "0.0189 G", "0"]
    assert amount_texts([512, 65_536]) == ["512", "65.5 k"]
    assert amount_texts([97_400_000_000, 6_690_000_000_000]) == ["0.0974 T", "6.69 T"]
    assert amount_texts([1.5, 2]) == ["1.5", "2"], "a unit of the user's own"


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_longer_bar_is_for_a_larger_fraction(a, b):
    bars = [bar_text(fraction) for fraction in sorted((a, b))]
    eighths = [sum(" ▏▎▍▌▋▊▉█".index(block) for block in bar) for bar in bars]
    assert all(len(bar) == 6 for bar in bars) and eighths == sorted(eighths)
    assert (eighths[0] > 0) == (min(a, b) > 0) and abs(eighths[1] - 48 * max(a, b)) <= 1


def drawn(table, width):
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_bars_are_drawn_if_the_table_fits():
    rows = [["Name", "Share"], ["all of it", "100.0 %"], ["a part", "6.3 %"]]
    table = TextTable(rows, numeric=("Share",), bars={"Share": [1.0, 0.063]})
    wide, narrow = drawn(table, 25), drawn(table, 24)
    assert "██████ 100.0 %" in wide and re.search(r"▍ +6\.3 %", wide)
    assert "█" not in narrow and "100.0 %" in narrow
    assert len({line.index("%") for line in wide.splitlines() if "%" in line}) == 1
    bar = "linear-gradient(to right, #0072b244 6.3%, transparent 0) 0 .25em / 2.6em 1.1em no-repeat"
    assert f"padding-left: 3em; background: {bar}" in table.html(), "the number is to the right of the bar"


def test_numbers_in_html_do_not_break_but_their_headers_may():
    html = TextTable([["Name", "Recomputed FLOPs"], ["all", "126 M"]], numeric=("Recomputed FLOPs",)).html()
    assert '<th scope="col" style="text-align: right">Recomputed FLOPs</th>' in html
    assert '<td style="text-align: right; white-space: nowrap">126 M</td>' in html

"""Cases cover the ranges that a page allows, and the page and the catalogue entry state the same ranges."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from grader.exercises import registry
from grader.exercises.spec import Integers

ROOT = Path(__file__).parents[3]
SLUGS = [slug for slug in registry.names() if registry.task(slug).ranges]


def ranges_of_the_page(slug) -> dict[str, str]:
    """Return the columns named `range` of the page's tables: each symbol with its range."""
    (page,) = ROOT.glob(f"exercises/[0-9][0-9]_{slug}.ipynb")
    cells = [cell for cell in json.loads(page.read_text())["cells"] if cell["cell_type"] == "markdown"]
    found, column = {}, None
    for line in "\n".join("".join(cell["source"]) for cell in cells).split("\n"):
        row = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if "range" in row:
            column = row.index("range")
        elif not row:
            column = None
        elif column is not None and not set(row[column]) <= set("-: "):
            for piece in row[column].split("; "):
                symbol, text = re.fullmatch(r"`(\w+)`: (.*)", piece).groups()
                assert symbol not in found
                found[symbol] = text
    return found


@pytest.mark.parametrize("slug", SLUGS)
def test_the_page_states_the_ranges_of_the_entry(slug):
    assert ranges_of_the_page(slug) == {symbol: str(range_) for symbol, range_ in registry.task(slug).ranges.items()}


@pytest.mark.parametrize("slug", SLUGS)
def test_both_ends_and_every_choice_are_among_the_cases(slug):
    task = registry.task(slug)
    for seed in range(10):
        structures = [case.structure for case in task.cases(np.random.default_rng(seed))]
        for symbol, range_ in task.ranges.items():
            drawn = [structure for structure in structures if symbol in structure]
            if not isinstance(range_, Integers):
                assert {structure[symbol] for structure in drawn} == set(range_.values), (symbol, seed)
                continue
            ends = [(_end_value(range_.low, each), each[symbol], _end_value(range_.high, each)) for each in drawn]
            assert all(low <= value <= high for low, value, high in ends), (symbol, seed)
            assert any(low == value for low, value, _ in ends), f"{symbol} is never its least ({seed})"
            assert any(value == high for _, value, high in ends), f"{symbol} is never its most ({seed})"


@pytest.mark.slow
@pytest.mark.parametrize("slug", SLUGS)
def test_something_between_the_ends_is_drawn(slug):
    task = registry.task(slug)
    structures = [case.structure for seed in range(10) for case in task.cases(np.random.default_rng(seed))]
    for symbol, range_ in task.ranges.items():
        if isinstance(range_, Integers):
            drawn = [each for each in structures if symbol in each]
            between = {e[symbol] for e in drawn if _end_value(range_.low, e) < e[symbol] < _end_value(range_.high, e)}
            few = all(len(range_.within(structure)) < 5 for structure in drawn)
            assert len(between) >= 3 or few, (symbol, between)


def _end_value(end, structure) -> int:
    return structure[end] if isinstance(end, str) else end

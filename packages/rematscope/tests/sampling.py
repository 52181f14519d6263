"""Which cases the usual run tries, and which are slow: `.ci/run` tries these too (`-m slow`)."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def few(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return cases for `pytest.mark.parametrize`, all but the first `count` marked slow."""
    return [case if i < count else pytest.param(case, marks=pytest.mark.slow) for i, case in enumerate(cases)]


def sampled(cases: Sequence[Any], share: int) -> list[Any]:
    """Return cases likewise, all marked slow but one in `share`; the run's seed says which one is the first."""
    first = int(os.environ.get("REMAT_SEED", "0")) % share
    marks = pytest.mark.slow
    return [case if i % share == first else pytest.param(case, marks=marks) for i, case in enumerate(cases)]

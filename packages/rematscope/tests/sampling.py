"""Which cases the usual run tries, and which are slow: `.ci/run` tries these too (`-m slow`)."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return cases for `pytest.mark.parametrize`, all but the first `count` marked slow."""
    return [case if i < count else pytest.param(case, marks=pytest.mark.slow) for i, case in enumerate(cases)]

"""Mark some cases of a test slow, so that only `.ci/run` runs them (`-m slow`)."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def few(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return cases for `pytest.mark.parametrize`, all but the first `count` marked slow."""
    return [case if i < count else _mark_slow(case) for i, case in enumerate(cases)]


def sampled(cases: Sequence[Any], share: int) -> list[Any]:
    """Return cases for `pytest.mark.parametrize`, all slow except one in `share`, from an offset that is the seed."""
    first = int(os.environ.get("REMAT_SEED", "0")) % share
    return [case if i % share == first else _mark_slow(case) for i, case in enumerate(cases)]


def _mark_slow(case: Any) -> Any:
    if hasattr(case, "marks"):  # of `pytest.param`
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(case, marks=pytest.mark.slow)

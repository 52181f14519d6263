"""The drawn inputs distinguish relu from similar activations, for every seed."""

import numpy as np
import pytest

from grader.catalog.checkpoint_dot_policy import expect, task
from grader.judging.comparison import TOLERANCE

LIKE_RELU = {
    "silu": lambda y: y / 2 * (1 + np.tanh(y / 2)),
    "gelu": lambda y: y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y * y * y))),
    "softplus": lambda y: np.log1p(np.exp(-abs(y))) + np.maximum(y, 0),
    "relu6": lambda y: np.clip(y, 0, 6),
    "leaky": lambda y: np.where(y > 0, y, 0.01 * y),
}


def told_apart(names: set[str], case, rng) -> set[str]:
    """Return those activations whose values differ from relu's by more than the judge's tolerance."""
    w1, w2, x = (np.float32(expect.sample_input(rng, argument)) for argument in case.arguments)
    y = x @ w1
    right = value(np.maximum(y, 0), w2)
    tolerance = TOLERANCE[str(case.arguments[0].dtype)] * abs(right).max()
    return {name for name in names if (abs(right - value(LIKE_RELU[name](y), w2)) > tolerance).any()}


def value(hidden, w2):
    return np.sum((hidden @ w2) ** 2, axis=(-2, -1))


@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 300), marks=pytest.mark.slow)], ids=str)
def test_an_activation_like_relu_has_another_value(seeds):
    missed = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        left = {*LIKE_RELU}
        for case in task.cases(rng):
            left -= told_apart(left, case, rng) if left else set()
        missed += [(seed, name) for name in left]
    assert missed == []

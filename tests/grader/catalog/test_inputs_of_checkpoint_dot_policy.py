"""The inputs that are drawn tell relu from what resembles it, whatever the seed."""

import numpy as np
import pytest

from grader.catalog.checkpoint_dot_policy import expect, task
from grader.judging.compare import TOLERANCE

LIKE_RELU = {
    "silu": lambda y: y / 2 * (1 + np.tanh(y / 2)),
    "gelu": lambda y: y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))),
    "softplus": lambda y: np.log1p(np.exp(-abs(y))) + np.maximum(y, 0),
    "relu6": lambda y: np.clip(y, 0, 6),
    "leaky": lambda y: np.where(y > 0, y, 0.01 * y),
}


def tells_apart(case, rng, like_relu) -> bool:
    """Whether the two activations give values that the judge's tolerance keeps apart."""
    w1, w2, x = (np.float32(expect.draw(rng, argument)) for argument in case.arguments)
    y = x @ w1
    right, other = (np.sum((h @ w2) ** 2, axis=(-2, -1)) for h in (np.maximum(y, 0), like_relu(y)))
    tolerance = TOLERANCE[str(case.arguments[0].dtype)]
    return bool((abs(right - other) > tolerance * abs(right).max()).any())


@pytest.mark.parametrize("name", LIKE_RELU)
def test_an_activation_like_relu_has_another_value(name):
    missed = []
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        if not any(tells_apart(case, rng, LIKE_RELU[name]) for case in task.cases(rng)):
            missed.append(seed)
    assert missed == []

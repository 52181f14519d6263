"""What is said of an exception, and where it comes from."""

import jax.numpy as jnp
import pytest

import rematscope
from grader.answers.failures import failure_of


def test_the_line_is_the_learners_where_the_instrument_raises():
    with pytest.raises(TypeError, match="missing 1 required positional argument") as raised:
        rematscope.trace(lambda x, w: x @ w, jnp.ones(2))
    assert "test_failures.py" in failure_of(raised.value).source

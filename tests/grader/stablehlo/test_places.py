"""An operation has a different place in each call of its function, and reader and interpreter agree on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grader.stablehlo import interpreter, reader
from grader.stablehlo.execution import Function

X = np.linspace(0.1, 1.7, 6, dtype=np.float32)


def draw_nested_calls(rng):
    """Return a function that calls random functions, which call each other several times."""
    functions = [jax.jit(jnp.sin), jax.jit(lambda x: x * x + 1)]
    for _ in range(4):
        called = [functions[i] for i in rng.integers(len(functions), size=3)]

        def compose(x, called=called):
            first, *others = called
            return sum((function(x * 0.5) for function in others), start=first(x))

        functions.append(jax.jit(compose))
    return lambda x: [function(x) for function in functions[-2:] for _ in range(2)]


@pytest.mark.parametrize("seed", range(4))
def test_no_two_calls_share_a_place(seed):
    text = Function(draw_nested_calls(np.random.default_rng(seed)), X).text
    program, watched = reader.read(text), []
    returned = interpreter.run(text, [X], lambda place, array: watched.append((place, array)))
    places, arrays = dict(program.places), dict(watched)
    assert len(watched) == len(arrays) == len(places) > text.count(" = stablehlo.")
    assert sorted(arrays) == sorted(places.values())
    for value, array in zip(program.outputs, returned, strict=True):
        np.testing.assert_array_equal(arrays[places[value]], array)

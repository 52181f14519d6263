"""How sure a predicted peak is, and what constants count in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rematscope import fit, measure

X = jax.ShapeDtypeStruct((16, 16), jnp.float32)


def read_back(x):
    """Return `x`, read from a mutable array."""
    new_ref = getattr(jax, "new_ref", None) or jax.array_ref
    return new_ref(x)[...]


KINDS = {
    "loops of unknown length": lambda x: (
        x * lax.while_loop(lambda c: c.sum() < 3, lambda c: jnp.sin(c) + 1, lax.stop_gradient(x))
    ),
    "custom calls": lambda x: x + lax.stop_gradient(jax.pure_callback(np.sin, X, lax.stop_gradient(x))),
    "linear algebra": lambda x: jnp.linalg.qr(x)[1],
    "sorts": lambda x: jnp.sort(x),
    "FFTs": lambda x: jnp.abs(jnp.fft.fft(x)),
    "mutable arrays": lambda x: read_back(jnp.sin(x)),
    "large closed-over constants": lambda x: jnp.sin(x @ np.eye(16, dtype=np.float32)[:, ::-1]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_reasons_for_an_uncertain_peak_are_stated(kind):
    notes = " ".join(measure(lambda x: KINDS[kind](x).sum(), X).warnings)
    assert "The predicted peak is an estimate and may be far off, because the program has" in notes
    assert [other for other in KINDS if other in notes] == [kind]


def test_a_program_without_such_operations_gets_no_warning():
    assert "may be far off" not in " ".join(measure(lambda x: jnp.sin(x @ x).sum(), X).warnings)
    assert "may be far off" not in repr(fit(lambda x: jnp.sin(x @ x).sum(), X, peak="1 MiB"))


@pytest.mark.parametrize("equal", [True, False])
def test_equal_constants_are_counted_once(equal):
    """XLA merges equal operations, even if they are different objects."""
    constants = [np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096 + i * (not equal) for i in range(20)]

    def f(x):
        for constant in constants:
            x = jnp.sin(x @ constant)
        return x.sum()

    made = measure(f, jax.ShapeDtypeStruct((64, 64), jnp.float32))
    assert made.predicted_peak_bytes == pytest.approx(made.peak_bytes, rel=0.05)

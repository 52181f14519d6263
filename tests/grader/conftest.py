import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(params=[False, True], ids=["remat", "remat3"])
def remat3(request):
    """Runs a test with JAX's rematerialization and with its next one (`JAX_REMAT3=1`)."""
    before = jax.config.jax_remat3
    jax.config.update("jax_remat3", request.param)
    yield request.param
    jax.config.update("jax_remat3", before)


@pytest.fixture
def unpatched():
    """Undoes what a test's wrong answers patch."""
    before = [(module, dict(vars(module))) for module in (np, jnp, np.testing)]
    yield
    for module, names in before:
        for name, value in names.items():
            if vars(module).get(name) is not value:
                setattr(module, name, value)

"""What older releases of JAX do otherwise, as marks for the tests that this concerns."""

import jax
import pytest


def since(release: str, reason: str):
    """Skips a test on releases before this one, since when what `reason` says is so."""
    old = jax.__version_info__ < tuple(map(int, release.split(".")))
    return pytest.mark.skipif(old, reason=f"since JAX {release} {reason}")

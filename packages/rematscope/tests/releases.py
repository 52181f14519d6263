"""Marks for tests that fail on older releases of JAX."""

import jax
import pytest


def since(release: str, reason: str):
    """Skip a test on releases before this one; `reason` states the change."""
    old = jax.__version_info__ < tuple(map(int, release.split(".")))
    return pytest.mark.skipif(old, reason=f"since JAX {release} {reason}")

import os

import jax
import pytest

# These tests compile many small programs and run each once: compile them fast, not well.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()

# Functions for several devices run on several CPU devices here; all other functions run on the first device.
jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture
def many(monkeypatch):
    """However few the names, choices are found and proven as if they were many."""
    monkeypatch.setattr("rematscope.choices.enumeration.FEW", 0)


@pytest.fixture(scope="session")
def seed() -> int:
    """The run's seed; the workbook's own settings, which set it, are left out where `on_jax.py` runs these tests."""
    return int(os.environ.get("REMAT_SEED", "0"))

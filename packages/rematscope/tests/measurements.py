"""Compiled figures for tests that do not compile."""

from types import SimpleNamespace
from typing import Any

from rematscope.xla.measure import CompiledMemory


def measurement_of(peak: int, temporaries: int = 0, predicted: int = 0) -> Any:
    """Return what a search reads of a `Measurement` of a program that fits on its device."""
    memory = CompiledMemory(peak - temporaries, 0, 0, temporaries, peak)
    return SimpleNamespace(
        memory=memory,
        peak_bytes=peak,
        peak_or_infinity=peak,
        predicted_peak_bytes=predicted,
        out_of_memory=None,
    )

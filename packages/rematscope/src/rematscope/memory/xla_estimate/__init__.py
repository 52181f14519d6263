"""Estimate the bytes that XLA allocates, from the trace: every rule here is one of XLA's.

`measure` compiles and reports what XLA allocates. `packages/rematscope/tests/memory/test_rules_of_xla.py` tests by name
what each rule is worth, so that it says which rule a release of XLA breaks.
"""

from rematscope.memory.xla_estimate.estimate import (
    Allocation,
    Allocations,
    allocations,
    distinct_constants,
    estimate_compiled_bytes,
    estimate_temporary_bytes,
    target_notes,
)
from rematscope.memory.xla_estimate.fusion import is_fused, is_tpu
from rematscope.memory.xla_estimate.loop_invariants import with_moved

__all__ = [
    "Allocation",
    "Allocations",
    "allocations",
    "distinct_constants",
    "estimate_compiled_bytes",
    "estimate_temporary_bytes",
    "is_fused",
    "is_tpu",
    "target_notes",
    "with_moved",
]

"""Estimate from the trace the bytes that XLA allocates, with rules that imitate XLA's passes.

`measure` compiles the program and reports the bytes that XLA allocates. The tests in
`packages/rematscope/tests/memory/test_rules_of_xla.py` measure the effect of each rule by name, so they show which rule
no longer holds in a new release of XLA.
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
from rematscope.memory.xla_estimate.fusion import is_usually_fused
from rematscope.memory.xla_estimate.loop_invariants import with_moved

__all__ = [
    "Allocation",
    "Allocations",
    "allocations",
    "distinct_constants",
    "estimate_compiled_bytes",
    "estimate_temporary_bytes",
    "is_usually_fused",
    "target_notes",
    "with_moved",
]

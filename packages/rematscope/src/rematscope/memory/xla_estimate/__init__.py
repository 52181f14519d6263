"""Estimate from the trace the bytes that XLA allocates, with rules that imitate XLA's passes.

`measure` compiles the program and reports the bytes that XLA allocates. The tests in
`packages/rematscope/tests/memory/test_rules_of_xla.py` measure the effect of each rule by name, so they show which rule
no longer holds in a new release of XLA.
"""

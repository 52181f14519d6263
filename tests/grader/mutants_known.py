"""Mutants that no shipped answer needs to notice, as `mutations.py` prints them, and why."""

KNOWN: dict[str, str] = {
    "checkpoint_dot_policy: requirement 1 of group 0: Recomputes.count loosened": "an answer cannot tell whether it is "
    "vmapped, so it also exceeds the bound under vmap",
}

"""Mutants, as `mutations.py` prints them, that no shipped answer needs to detect, each with the reason."""

KNOWN: dict[str, str] = {
    "checkpoint_dot_policy: requirement 1 of group 0: Recomputes.count loosened": "an answer cannot tell whether it is "
    "vmapped, so it also exceeds the bound under vmap",
}

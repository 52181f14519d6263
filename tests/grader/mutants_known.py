"""Mutants that no shipped answer needs to notice, as `mutations.py` prints them, and why."""

_BOTH = "an answer that exceeds it there also exceeds the bound of another group, which the mutant leaves as it is"

KNOWN: dict[str, str] = {
    "all_but: requirement 1 of group 3: Recomputes.dots loosened": _BOTH,
    "all_but: requirement 1 of group 4: Recomputes.dots loosened": "the bound is computed for the drawn function; "
    "again_for_a_drawn_name exceeds it by more than one matmul",
    "checkpoint_dot_policy: requirement 1 of group 0: Recomputes.dots loosened": "an answer cannot tell whether it is "
    "vmapped, so it also exceeds the bound under vmap",
}

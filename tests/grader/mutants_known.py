"""Mutants that no shipped answer needs to notice, as `mutations.py` prints them, and why."""

KNOWN: dict[str, str] = {}

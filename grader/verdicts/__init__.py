"""Verdicts, and how they look."""

"""Verdicts and their views."""

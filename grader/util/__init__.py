"""Helpers that know nothing of grading: files that appear whole, bounded JSON, versions."""

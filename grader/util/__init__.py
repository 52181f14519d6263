"""Helpers that know nothing of grading: new files, bounded JSON, versions."""

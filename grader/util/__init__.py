"""Helpers that are independent of grading: new files, bounded JSON, versions."""

"""Choosing what to save: under a byte budget, over all of them, or until it fits."""

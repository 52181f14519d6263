"""Compute the saved bytes and the recompute of each choice of saved values, and find the best choice."""

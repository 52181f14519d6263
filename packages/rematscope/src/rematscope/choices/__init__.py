"""The saved bytes and the recompute of each choice of saved values, and the best choice."""

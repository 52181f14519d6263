"""Exercise 4: two checkpoints for three layers, with the boundary at the narrower of two outputs."""

"""Exercise 12: find out why a checkpoint in a transformer has no effect, and repair it."""

"""Exercise 26: find out why a checkpoint in a transformer has no effect, and repair it."""

"""Exercise 12: what is left of a checkpoint when XLA has compiled it."""

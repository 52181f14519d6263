"""Exercise 13: what is left of a checkpoint when XLA has compiled it."""

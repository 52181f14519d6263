"""Exercise 14: a chain of functions in k checkpointed segments."""

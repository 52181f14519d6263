"""Exercise 1: say what operations keep for their backward pass."""

"""Exercise 2: say what operations keep for their backward pass."""

"""Exercise 2: say what five operations keep for their backward pass."""

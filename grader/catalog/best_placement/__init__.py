"""Exercise 5: checkpoint every stage but the last."""

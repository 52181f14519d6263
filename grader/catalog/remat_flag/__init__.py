"""Exercise 11: checkpoint a function with a flag that Python reads."""

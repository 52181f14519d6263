"""Exercise 3: checkpoint a function with a flag that Python reads."""

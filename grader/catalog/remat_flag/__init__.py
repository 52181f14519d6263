"""Exercise 6: checkpoint a function with a flag that Python reads."""

"""Exercise 26: attention with a rule of its own, which keeps nothing as large as its scores."""

"""Exercise 25: attention with a custom rule that saves nothing as large as its scores."""

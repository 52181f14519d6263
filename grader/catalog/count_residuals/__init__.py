"""Exercise 1: count what a function's forward pass keeps."""

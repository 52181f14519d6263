"""Exercise 4: count what a function's forward pass keeps."""

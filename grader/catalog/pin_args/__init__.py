"""Exercise 27: a checkpoint whose barrier holds one argument, and lets the others go ahead."""

"""Exercise 27: a checkpoint whose barrier holds only one argument."""

"""Exercise 24: a layer whose weights are divided over eight devices, and gathered again to go back."""

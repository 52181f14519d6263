"""Exercise 16: a differentiable while loop that saves few states."""

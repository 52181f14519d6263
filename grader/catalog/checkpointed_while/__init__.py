"""Exercise 15: a differentiable while loop that saves few states."""

"""Exercise 18: a differentiable while loop that saves few states."""

"""Exercise 17: go back through a chain of steps with few states in memory."""

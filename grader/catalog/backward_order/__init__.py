"""Exercise 22: the order of a backward pass in which the least is in memory at once."""

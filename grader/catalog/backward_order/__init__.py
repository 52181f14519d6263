"""Exercise 21: the order of a backward pass with the smallest peak memory."""

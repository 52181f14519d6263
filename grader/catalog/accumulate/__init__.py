"""Exercise 26: the gradient of a batch, one microbatch after the other."""

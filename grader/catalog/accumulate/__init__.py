"""Exercise 24: the gradient of a batch, one microbatch after the other."""

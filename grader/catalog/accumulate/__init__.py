"""Exercise 28: the gradient of a batch, one microbatch after the other."""

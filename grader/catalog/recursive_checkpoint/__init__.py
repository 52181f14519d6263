"""Exercise 15: checkpoints within checkpoints, so that what is kept grows with the logarithm of the chain."""

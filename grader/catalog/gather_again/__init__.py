"""Exercise 22: a layer whose sharded weights are gathered again in the backward pass."""

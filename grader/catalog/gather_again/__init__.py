"""Exercise 23: a layer whose sharded weights are gathered again in the backward pass."""

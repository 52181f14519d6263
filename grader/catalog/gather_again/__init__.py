"""Exercise 21: a layer whose sharded weights are gathered again in the backward pass."""

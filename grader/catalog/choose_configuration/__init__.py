"""Exercise 32: the checkpoint policy and the microbatches of a training step that fits in memory at the lowest cost."""

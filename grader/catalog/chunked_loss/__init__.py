"""Exercise 28: a loss over a large vocabulary, of which one chunk's logits are in memory at a time."""

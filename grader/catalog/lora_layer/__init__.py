"""Exercise 29: an MLP with LoRA adapters that saves nothing for its frozen weights."""

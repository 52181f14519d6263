"""Exercise 31: a training step that runs out of memory, and the change that its memory report asks for."""

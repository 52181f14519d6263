"""Exercise 26: attention over blocks of keys and values that travel around a ring of devices, in both passes."""

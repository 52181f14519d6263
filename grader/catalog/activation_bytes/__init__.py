"""Exercise 19: the bytes of a transformer layer that each of several devices saves."""

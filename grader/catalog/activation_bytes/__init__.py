"""Exercise 17: the bytes of a transformer layer that each of several devices saves."""

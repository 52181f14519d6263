"""Exercise 20: the bytes that a transformer layer keeps on each of several devices."""

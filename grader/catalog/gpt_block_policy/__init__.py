"""Exercise 17: a menu of policies for transformer blocks, by the names of their values."""

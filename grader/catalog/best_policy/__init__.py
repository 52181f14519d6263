"""Exercise 19: the best names to save within a byte budget."""

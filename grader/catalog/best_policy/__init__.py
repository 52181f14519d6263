"""Exercise 20: the best names to save within a byte budget."""

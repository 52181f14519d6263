"""Exercise 18: the best names to save within a byte budget."""

"""Exercise 21: the best names to save within a byte budget."""

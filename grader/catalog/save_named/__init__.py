"""Exercise 7: save the values that have certain names."""

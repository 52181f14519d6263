"""Exercise 9: save the values that have certain names."""

"""Exercise 5: count the residuals of a function."""

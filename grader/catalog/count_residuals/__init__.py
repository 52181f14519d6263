"""Exercise 4: count the residuals of a function."""

"""Exercise 25: a policy that saves values whose names match a regular expression."""

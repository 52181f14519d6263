"""Exercise 9: a policy that says yes where either of two does."""

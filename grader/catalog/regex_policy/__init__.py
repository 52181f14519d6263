"""Exercise 25: a policy that saves what has a name that a pattern describes."""

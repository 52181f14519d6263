"""Exercise 9: a policy that saves, offloads or recomputes named values by rules."""

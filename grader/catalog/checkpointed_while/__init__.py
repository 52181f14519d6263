"""Exercise 18: a while loop that can be differentiated, of which few states are kept."""

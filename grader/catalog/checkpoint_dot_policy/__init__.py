"""Exercise 10: save the results of matrix multiplications, recompute the rest."""

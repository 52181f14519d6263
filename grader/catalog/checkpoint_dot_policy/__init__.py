"""Exercise 7: save the results of matrix multiplications, recompute the rest."""

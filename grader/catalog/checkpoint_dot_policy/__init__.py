"""Exercise 6: save the results of matrix multiplications, recompute the rest."""

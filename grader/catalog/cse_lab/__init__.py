"""Exercise 13: the effect of a checkpoint after XLA's common-subexpression elimination."""

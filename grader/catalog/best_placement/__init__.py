"""Exercise 6: checkpoints only around the stages whose inputs are smaller than their residuals."""

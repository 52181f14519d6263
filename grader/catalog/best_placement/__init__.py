"""Exercise 5: checkpoints only around the stages whose inputs are smaller than their residuals."""

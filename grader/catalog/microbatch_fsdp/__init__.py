"""Exercise 30: a layer with sharded weights that runs microbatches and gathers each weight once per pass."""

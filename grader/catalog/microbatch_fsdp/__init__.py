"""Exercise 28: a layer with sharded weights that runs microbatches and gathers each weight once per pass."""

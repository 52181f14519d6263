"""Exercise 3: one checkpoint a layer, so that only the layers' inputs are saved."""

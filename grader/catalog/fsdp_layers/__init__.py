"""Exercise 24: sharded layers in a scan under `jax.jit`, with constraints that gather one layer's weights at a time."""

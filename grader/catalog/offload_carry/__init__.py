"""Exercise 21: layers in a scan whose carries are offloaded to host memory."""

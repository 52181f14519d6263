"""Exercise 20: layers in a scan whose carries are offloaded to host memory."""

"""Exercise 22: layers in a scan whose carries are offloaded to host memory."""

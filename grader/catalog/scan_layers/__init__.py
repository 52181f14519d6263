"""Exercise 11: layers in a scan that saves only the carries."""

"""Exercise 11: layers in a scan, of which only the carries are kept."""

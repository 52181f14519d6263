"""Exercise 23: layers in a scan, whose carries wait in the host's memory."""

"""Exercise 16: a scan in a scan, of which one carry a group is kept."""

"""Exercise 13: nested scans that save one carry per group."""

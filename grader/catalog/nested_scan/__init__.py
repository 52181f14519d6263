"""Exercise 16: nested scans that save one carry per group."""

"""Exercise 14: nested scans that save one carry per group."""

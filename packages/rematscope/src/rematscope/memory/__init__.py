"""What is in memory when."""

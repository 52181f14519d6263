"""Exercise 8: name the value whose saving spares a matmul."""

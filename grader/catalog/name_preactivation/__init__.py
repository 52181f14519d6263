"""Exercise 10: name the value whose saving spares a matmul."""

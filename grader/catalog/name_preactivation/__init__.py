"""Exercise 8: name the value that avoids recomputing a matmul."""

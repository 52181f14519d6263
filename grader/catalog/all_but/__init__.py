"""Exercise 11: save all values that have a name, but one."""

"""Exercise 9: save all values that have a name, but one."""

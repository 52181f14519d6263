"""Exercise 15: the schedule that goes back through a chain of steps with few saved states."""

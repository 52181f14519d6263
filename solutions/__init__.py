"""Worked answers, one module an exercise, each with a function of the exercise's name."""

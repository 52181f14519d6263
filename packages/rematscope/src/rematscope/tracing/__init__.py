"""Trace a function into a forward and a backward program, with the residuals between them."""

"""Compile both passes, and read the memory, cost and collectives of the optimized program."""

"""Choices of saved values: the best within a budget, all Pareto-optimal ones, and one that fits compiled."""

"""A class, from its files to its grades."""

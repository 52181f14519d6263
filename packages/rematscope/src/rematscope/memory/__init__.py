"""How many bytes are live after each equation."""

"""A function whose backward pass keeps within a limit: what to keep of all its values, and when to compute the rest."""

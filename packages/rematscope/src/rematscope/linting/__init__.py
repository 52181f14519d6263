"""Names and checkpoints that do not do what they look like."""

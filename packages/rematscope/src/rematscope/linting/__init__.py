"""Find checkpoint names, policies and checkpoints that have no effect."""

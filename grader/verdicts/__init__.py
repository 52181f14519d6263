"""What a check says, and how that looks."""

"""What a learner meets: the three verbs, the panel, the board, progress, pages."""

"""The learner's side: the three verbs, the panel, the board, progress, and pages."""

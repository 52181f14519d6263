"""The verdict on evidence. Nothing here runs a learner's code."""

"""What knows nothing of grading."""

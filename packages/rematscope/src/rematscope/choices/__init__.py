"""What each choice of saved values keeps and computes again, and which choice is best."""

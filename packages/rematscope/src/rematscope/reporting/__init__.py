"""What fills the memory of a training step, and which verified changes make it fit."""

"""What the compiler made of both passes."""

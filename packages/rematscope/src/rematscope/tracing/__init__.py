"""A function becomes two programs, and what crosses between them."""

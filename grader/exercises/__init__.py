"""What an exercise is: cases, requirements, hints, and where the catalogue keeps them."""

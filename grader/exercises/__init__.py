"""The definition of an exercise: cases, requirements, feedback, and the registry of the catalogue."""

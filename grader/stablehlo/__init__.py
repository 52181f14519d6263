"""An answer's programs: read as graphs, interpreted, run."""

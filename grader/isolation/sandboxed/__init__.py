"""Code that runs inside the sandbox. Nothing else of `grader.isolation` is shown there."""

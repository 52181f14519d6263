"""Programs: values and equations, what they cost, which depend on which, and how they read."""

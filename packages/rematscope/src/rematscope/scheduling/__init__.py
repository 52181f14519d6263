"""Choose which values a function saves, and when it recomputes the others, so that its peak stays within a limit."""

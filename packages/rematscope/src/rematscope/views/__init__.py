"""What a reader looks at: both programs, the residuals, and what to choose."""

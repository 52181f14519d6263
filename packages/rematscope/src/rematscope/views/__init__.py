"""The views: both programs, the residuals, and comparisons of variants."""

"""One package per exercise: `task` is for tracing an answer; only the judge may see `expect` and `feedback.toml`."""

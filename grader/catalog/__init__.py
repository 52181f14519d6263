"""One package an exercise: `task` is what tracing an answer needs, `expect` what only the judge may see."""

"""Finding an answer, running it, and what it leaves as evidence. The only folder that runs a learner's code."""

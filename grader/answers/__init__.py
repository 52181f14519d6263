"""Finding an answer in what a learner wrote, and running the statements that it needs."""

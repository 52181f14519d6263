"""Judging: from evidence to a verdict. Nothing here runs a learner's code, or imports what does.

Checking an answer is to capture its evidence (`grader.tracing`), to judge that, and to draw what the verdict is about:
`grader.isolation.in_process`. Grading is to check a class's answers, each where it can do no harm: `grader.classroom`.
"""

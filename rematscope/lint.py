"""Names and checkpoints that do nothing, and where they would."""

from rematscope.recompute import RecomputeGraph


def no_names(graph: RecomputeGraph) -> str:
    """Why there is nothing to choose in a function, and what to name instead."""
    return f"{graph.passes.function} gives no value a name that the backward pass could use."

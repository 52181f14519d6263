"""Worked answer to exercise 21: keep the order of the cotangents, and compute everything else just before its first
use.

Which equations belong to the cotangent's path, and which are recomputed? Recomputed values depend on residuals only. So
visit the equations once in the given order: an equation that reads `"ct"`, or a value computed from it, belongs to the
cotangent's path.

The path is a chain, so its order is fixed. A recomputed value can run at any time before its first use, and it takes
memory from then on. So it should run just before its first use: before an equation is added to the order, add what it
reads and what has not been added yet, recursively. A value with two uses is added once, before the first of them.

This order is not always the best. If an equation computes a small value from a large one, it may be better to run it
early, while little else is live. For arbitrary equations, finding the best order is NP-complete (Sethi, "Complete
register allocation problems", 1975). For layers that follow one another, just-in-time order is simple and good.
`rematscope.with_schedule` orders a whole model in this way.
"""


def backward_order(equations, residuals):
    """Return an order for the equations of a backward pass with a low peak.

    Args:
      equations: tuples (name, names that it reads, bytes of its result), in a valid order.
      residuals: names that exist before the first equation; one of them is `"ct"`, the incoming cotangent.

    Returns:
      A list of the equations' names, each once, in the order in which they run.
    """
    reads_of = {name: reads for name, reads, _ in equations}
    order = []

    def put(name):
        if name in residuals or name in order:
            return
        for read in reads_of[name]:
            put(read)
        order.append(name)

    from_the_cotangent = {"ct"}
    for name, reads, _ in equations:
        if from_the_cotangent.intersection(reads):
            from_the_cotangent.add(name)
            put(name)
    return order

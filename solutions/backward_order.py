"""Worked answer to exercise 22: what the cotangent comes into keeps its order; all else waits until somebody reads it.

Which equations are the backward pass, and which compute again? What is computed again is made from residuals alone. So
go through the equations once: one that reads `"ct"`, or something made from it, belongs to the cotangent's way.

That way is a chain, and its order is settled. The equations beside it can run at any time before their first reader,
and the bytes that they make lie there from then on. So each of them runs directly before: whoever is to be put into the
order puts first what it reads and is not there yet, and that one in turn puts what it reads itself. What two read is
put by the first of them, and once.

It is not always the best. Where an equation makes little out of much, it may pay to have done with it early, while
nothing else is in memory; and what is best for any equations takes longer to find, the more there are (Sethi, "Complete
register allocation problems", 1975, shows that this problem is NP-complete). For layers, one after the other, late is
simple and good. `rematscope.with_schedule` orders a whole model like that.
"""


def backward_order(equations, residuals):
    """Orders a backward pass so that little is in memory at once.

    Args:
      equations: tuples (name, names that it reads, bytes that it makes), in an order in which they can run.
      residuals: names that are there from the beginning, `"ct"` among them: the cotangent that comes in.

    Returns:
      A list of the equations' names, each once, in the order in which they are to run.
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

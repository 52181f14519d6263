"""Worked answer to exercise 6: a flag that Python reads must not become a tracer.

`jax.checkpoint` traces a function with its arguments turned into tracers, which have a shape and no value. A Python
`if` needs a value. `static_argnums` leaves an argument as it is, by position, and traces the function anew for every
other value of it. Positions may be counted from the end: -1 is the last argument, however many arrays come before it.

The other way does without it: let the flag not be an argument of what is checkpointed.

    def remat_flag(f):
        def g(*arguments):
            *arrays, flag = arguments
            return jax.checkpoint(lambda *arrays: f(*arrays, flag))(*arrays)

        return g

Either way the branch that is not taken is in neither of the two programs.
"""

import jax


def remat_flag(f):
    """`f`, checkpointed, with a last argument that remains a Python value.

    Args:
      f: a function of arrays and, as its last argument, a bool.

    Returns:
      A function of the same arguments. The bool must be passed by position.
    """
    return jax.checkpoint(f, static_argnums=(-1,))

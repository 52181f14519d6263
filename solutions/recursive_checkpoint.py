"""Worked answer to exercise 15: checkpoints inside checkpoints.

The list is split in two. Its second half runs first, and the backward pass needs it last, so it gets the checkpoint and
saves only its input. Its first half runs last, and the backward pass needs it first, so it gets none. Both halves are
chains and are built in the same way. The half without a checkpoint is split again and saves one more input, and so on:
one input for each time that n can be halved. The last two functions save their own residuals.

The half with the checkpoint is built recursively too. This does not change what the forward pass saves, because the
outer checkpoint decides. It matters when the backward pass recomputes this half: then it saves the inputs of its own
halves, and not the residuals of all of its functions. Otherwise the peak would be n / 2 values, and the few saved
values would be of no use.

The default `prevent_cse=True` is necessary. Each function runs several times, and without barriers XLA would compute it
once and keep the result in memory.

The price is recompute. Each level of the recursion runs half of the functions once more. In total, the backward pass
recomputes (n / 2) log2 n + 1 - n functions: 17 for n = 16, and 129 for n = 64. In return, a chain of 64 functions saves
only 7 values.
"""

import jax


def recursive_checkpoint(funs):
    """Return a function that applies the functions and saves a number of values that grows with log2 n.

    Args:
      funs: a list of functions of one array; the last is applied first. Their number is a power of two.

    Returns:
      A function of one array.
    """
    if len(funs) == 1:
        return funs[0]
    middle = len(funs) // 2
    late, early = recursive_checkpoint(funs[:middle]), recursive_checkpoint(funs[middle:])
    if len(funs) > 2:
        early = jax.checkpoint(early)
    return lambda x: late(early(x))

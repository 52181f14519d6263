"""Worked answer to exercise 15: checkpoints within checkpoints.

The list is cut in two. Its second half runs first and is wanted last by the backward pass, so it is wrapped: only its
input is kept. Its first half runs last and is wanted first, so it is not. Both halves are chains, and each is treated
as the whole was. The half that is not wrapped is cut again, and keeps one input more, and so on: one for each time that
n can be halved. The last two functions keep what they need themselves.

The half that is wrapped is cut again too. That does not show in what is kept, since an outer checkpoint decides what
crosses. It shows when this half is run again: then it keeps the inputs of its own halves, and not something of each of
its functions. Without it the peak would be n / 2 values, and all that is saved between the passes would be of no use.

The default `prevent_cse=True` stays. Each function runs several times, and without barriers XLA would compute it once,
and keep the result after all.

The price: each halving runs half of the functions once more. All in all that is (n / 2) log2 n + 1 - n functions that
run again, 17 for 16 and 129 for 64. In return 64 functions do with 7 values.
"""

import jax


def recursive_checkpoint(funs):
    """The functions one after another, with what is kept growing as the logarithm of their number.

    Args:
      funs: a list of functions, each of one array; the last is run first. Their number is a power of two.

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

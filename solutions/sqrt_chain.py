"""Worked answer to exercise 14: a checkpoint around each of k segments.

While the backward pass runs, the memory holds the inputs of the k segments and the residuals of the segment that is
being recomputed. With n functions, a segment has about n / k of them, so the total is k + n / k values. The sum is
smallest for k = √n: a chain of 100 functions needs 20 values instead of 100.

The recompute cost is low. The backward pass recomputes every function of a segment except the last: it needs what that
function saves, not its output. So it recomputes n − k functions, less than one extra forward pass.

The last segment has a checkpoint too, unlike the last stage in exercise 5. Without it, the backward pass would
recompute less at the same peak, but between the passes the last segment would save n / k values instead of one. This
exercise asks for the minimum that k segments can save.
"""

import functools

import jax


def sqrt_chain(fs, k):
    """Return a function that applies the functions in k segments, each of which saves only its input.

    Args:
      fs: a list of functions of one array; the first is applied first.
      k: the number of segments, from 1 to the number of functions. Their lengths differ by at most one, and the longer
        segments come first.

    Returns:
      A function of one array.
    """
    length, longer = divmod(len(fs), k)
    segments = []
    start = 0
    for number in range(k):
        end = start + length + (number < longer)
        segments.append(jax.checkpoint(compose(fs[start:end])))
        start = end
    return compose(segments)


def compose(fs):
    return lambda x: functools.reduce(lambda x, f: f(x), fs, x)

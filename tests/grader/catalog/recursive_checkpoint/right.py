"""Right answers to recursive_checkpoint, spelled in many ways."""

import functools

import jax
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def as_jax_documents_it(funs):
    if len(funs) == 1:
        return funs[0]
    if len(funs) == 2:
        f1, f2 = funs
        return lambda x: f1(f2(x))
    f1 = as_jax_documents_it(funs[: len(funs) // 2])
    f2 = as_jax_documents_it(funs[len(funs) // 2 :])
    return lambda x: f1(jax.checkpoint(f2)(x))


@passes
def from_pairs_upward(funs):
    """Two neighbours become one function, until there is one."""
    first = True
    while len(funs) > 1:
        wrap = (lambda f: f) if first else jax.checkpoint
        pairs = zip(funs[::2], funs[1::2], strict=True)
        funs = [functools.partial(lambda late, early, x: late(early(x)), late, wrap(early)) for late, early in pairs]
        first = False
    return funs[0]


@passes
def in_order_of_application(funs):
    def halves(steps):
        if len(steps) <= 2:
            return lambda x: functools.reduce(lambda x, f: f(x), steps, x)
        middle = len(steps) // 2
        early, late = jax.remat(halves(steps[:middle])), halves(steps[middle:])
        return lambda x: late(early(x))

    return jax.jit(halves(funs[::-1]))

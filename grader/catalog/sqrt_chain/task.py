"""What an answer is tried on."""

import jax
import numpy as np
from jax import lax

from grader.exercises import case_functions
from grader.exercises.case_functions import mixing_weights, product
from grader.exercises.spec import Case, Integers, OneOf

parameters = ("fs", "k")
ranges = {
    "n": Integers(1, 24),
    "axes": Integers(1, 3),
    "dtype": OneOf(("float32", "float16")),
    "k": Integers(1, "n"),
    "called": OneOf(("as it is", "under jax.jit", "under jax.vmap")),
}
signature = "sqrt_chain(fs, k)"


def cases(rng):
    """Chains of all lengths, in one segment, in as many as there are functions, and in numbers between, which divide
    that of functions or do not; with a random width. Of each function JAX saves one cosine."""
    one, each = map(int, np.exp(rng.uniform(np.log(3), np.log(24), 2)))
    root = int(rng.integers(2, 5))  # as many segments as each one has functions
    uneven = int(rng.choice([k for k in range(2, 24) if 24 % k]))  # one segment is longer, or several are
    return (
        # Two longer segments, two shorter ones: where fewer remain, many another way to cut a chain leads to the same.
        _make_case(10, 4, rng),
        _make_case(1, 1, rng, dtype="float16"),
        _make_case(one, 1, rng, axes=1, called="under jax.jit"),
        _make_case(each, each, rng, axes=3, used=True),
        _make_case(root * root, root, rng, called="under jax.vmap", twice=True),
        _make_case(24, uneven, rng, twice=True),
    )


def case(rng, n, axes, dtype, k, called):
    """Return a chain of this length in so many segments, perhaps with a function that comes twice."""
    return _make_case(n, k, rng, axes, dtype, called, twice=n > 1 and bool(rng.integers(2)))


def _make_case(n, k, rng, axes=2, dtype="float32", called="as it is", twice=False, used=False, shape=None, name=None):
    shape = shape or (*(2,) * (axes - 2), *map(int, rng.permutation([5, 6, 7, 8, 9])[: min(axes, 2)]))
    batch = (2,) if called == "under jax.vmap" else ()
    argument = jax.ShapeDtypeStruct((*batch, *shape), dtype)
    weights = [mixing_weights(rng, shape[-1], 1.5, dtype) for _ in range(n)]
    functions = [_make_function(w) for w in weights]
    if twice:
        last = int(rng.choice([n - n // k or n - 1, n - 1]))  # where the last segment begins, or the chain ends
        weights[last], functions[last] = weights[0], functions[0]

    def function(x, *, name=lambda value, called: value):
        for place, w in enumerate(weights):
            cosine = f"the last segment's cosine of fs[{place}]" if place >= n - n // k else f"fs[{place}]'s cosine"
            name(lax.cos(lax.stop_gradient(x)), cosine)
            sine = name(lax.sin(x), f"fs[{place}]'s sine")
            x = name(product(sine, w), "the result" if place == n - 1 else f"fs[{place}]'s output")
        return x

    def apply(answer):
        # A list of its own each time: an answer may change it.
        made = answer([*functions], k)
        if used and callable(made):
            jax.eval_shape(made, argument)
        return made

    what = f"{n} function{'s' * (n > 1)}{_OF[axes]} in {k} segment{'s' * (k > 1)}"
    what += " in float16" * (dtype == "float16") + f", {called}" * (called != "as it is")
    what += ", one function twice" * twice + ", called a second time" * used
    return Case(
        name or what,
        (argument,),
        transform=case_functions.transform(called.removeprefix("under ")),
        apply=apply,
        function=function,
        structure={"n": n, "axes": axes, "dtype": dtype, "k": k, "called": called},
    )


_OF = {1: " of vectors", 2: "", 3: " of arrays with three axes"}


def _make_function(w):
    return lambda x: product(lax.sin(x), w)


shown = _make_case(
    16, 4, np.random.default_rng(0), shape=(256, 64), name="for 16 functions of the grader in 4 segments"
)

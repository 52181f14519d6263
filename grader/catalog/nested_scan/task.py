"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.case_functions import mixing_weights
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "carry": OneOf(("(d,)", "(d, e)")),
    "dtype": OneOf(("float32", "float16")),
    "n": Integers(1, 36),
    "elements": OneOf(("(n,)", "(n, d)", "(n, d, e)")),
    "outer": Integers(1, "n", "a divisor of `n`"),
    "called": OneOf(("directly", "under jax.jit", "under jax.vmap")),
}
signature = "nested_scan(f, c, xs, outer)"


def cases(rng):
    """Draw cases with one group, with one group per element, and with numbers in between; even and odd numbers of
    elements, and a width that equals none of these numbers."""
    one, each = map(int, np.exp(rng.uniform(np.log(2), np.log(36), 2)))
    odd, third = ((9, 3), (15, 3), (15, 5), (21, 3), (21, 7), (25, 5))[rng.integers(6)]
    return (
        case(rng, 6, 3, elements="(n, d)"),
        case(rng, 1, 1, elements="(n, d)"),
        case(rng, one, 1, called="under jax.jit"),
        case(rng, each, each, carry="(d, e)", elements="(n, d, e)"),
        case(rng, 36, int(rng.choice([2, 3, 4, 6, 9, 12, 18])), dtype="float16", called="under jax.vmap"),
        case(rng, odd, third, elements="(n, d)"),
    )


def fits(structure):
    """Return whether an element is a scalar or has the carry's shape, so that their sum has the carry's shape."""
    return structure["elements"] in ("(n,)", structure["carry"].replace("d", "n, d", 1).replace(",)", ")"))


def case(rng, n, outer, carry="(d,)", elements="(n,)", dtype="float32", called="directly", width=None, name=None):
    """Return a case with `n` elements in `outer` groups."""
    width = width or int(rng.choice([5, 7, 8]))
    w = mixing_weights(rng, width, 1.2, dtype)
    inner = n // outer
    sizes = {"n": n, "d": width, "e": 10}
    first, stack = (tuple(sizes[size] for size in shape if size in sizes) for shape in (carry, elements))
    batch = (2,) if called == "under jax.vmap" else ()

    def step(c, x):
        return jnp.sin(w @ c + x)

    def function(c, xs, *, name=lambda value, called: value):
        def body(c, x):
            here = jax.lax.stop_gradient(c)
            return step(c, x), (here, w @ here, jnp.cos(w @ here + jax.lax.stop_gradient(x)))

        result, (carries, products, cosines) = jax.lax.scan(body, c, xs)
        xs = jax.lax.stop_gradient(xs)
        for gap in range(1, n + 1):
            if n % gap == 0:
                every = "every carry" if gap == 1 else f"every {_ORDINAL[gap]} carry"
                every += ", as if outer were the group size" * (gap == outer)
                name(carries[::gap], "each group's first carry" if gap == inner else every)
        for what, values in (("carry", carries), ("product", products), ("cosine", cosines)):
            name(values.reshape(outer, inner, *first), f"every {what}, group by group")
        name(cosines, "every cosine")
        groups = name(xs.reshape(outer, inner, *stack[1:]), "a copy of xs, group by group")
        name(jnp.broadcast_to(groups, (outer, *groups.shape)), "all of xs, once for each group")
        # The first groups are enough to recognize a Python loop.
        for number in range(min(outer, 4) if outer > 1 else 0):
            if number:  # the first group starts with c
                name(carries[number * inner], f"group {number + 1}'s first carry")
            name(xs[number * inner : (number + 1) * inner], f"group {number + 1}'s elements")
        return name(result, "the result")

    what = f"{n} element{'s' * (n > 1)} in {outer} group{'s' * (outer > 1)}"
    what += ", carries with two axes" * (carry != "(d,)") + ", in float16" * (dtype == "float16")
    return Case(
        name or what + f", {called}" * (called != "directly"),
        (jax.ShapeDtypeStruct((*batch, *first), dtype), jax.ShapeDtypeStruct(stack, dtype)),
        transform=case_functions.transform(called.removeprefix("under "), in_axes=(0, None)),
        apply=lambda answer: lambda c, xs: answer(step, c, xs, outer),
        function=function,
        structure={"carry": carry, "dtype": dtype, "n": n, "elements": elements, "outer": outer, "called": called},
    )


_ORDINAL = {2: "2nd", 3: "3rd"} | {n: f"{n}th" for n in range(4, 65)}


shown = case(np.random.default_rng(0), 64, 8, width=256, name="for 64 elements in 8 groups")

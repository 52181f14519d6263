"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.spec import Case

parameters = ("f", "c", "xs", "outer")
ranges: dict = {}
signature = "nested_scan(f, c, xs, outer)"


def cases(rng):
    """Elements that are arrays, and numbers; at a width drawn anew that is no number of groups or of elements."""
    return (
        _case("6 elements in 3 groups", 6, 3, rng, arrays=True),
        _case("8 elements in 2 groups under vmap over c", 8, 2, rng, batch=(3,)),
    )


def _case(name, n, outer, rng, batch=(), arrays=False, width=None):
    width = width or int(rng.choice([5, 7, 9]))
    w = _weights(rng, width)
    inner = n // outer

    def step(c, x):
        return jnp.sin(w @ c + x)

    def function(c, xs, *, name=lambda value, called: value):
        def body(c, x):
            return step(c, x), (c, w @ c, jnp.cos(w @ c + x))

        result, (carries, products, cosines) = jax.lax.scan(body, c, xs)
        for gap in range(1, n + 1):
            if n % gap == 0:
                every = "every carry" if gap == 1 else f"every {_ORDINAL[gap]} carry"
                name(carries[::gap], "each group's first carry" if gap == inner else every)
        for what, values in (("carry", carries), ("product", products), ("cosine", cosines)):
            name(values.reshape(outer, inner, width), f"every {what}, group by group")
        name(cosines, "every cosine")
        groups = name(xs.reshape(outer, inner, *xs.shape[1:]), "a copy of xs, group by group")
        name(jnp.broadcast_to(groups, (outer, *groups.shape)), "all of xs, once for each group")
        for number in range(1, outer):
            name(carries[number * inner], f"group {number + 1}'s first carry")
        for number in range(outer):
            name(xs[number * inner : (number + 1) * inner], f"group {number + 1}'s elements")
        return name(result, "the result")

    return Case(
        name,
        (
            jax.ShapeDtypeStruct((*batch, width), jnp.float32),
            jax.ShapeDtypeStruct((n, width) if arrays else (n,), jnp.float32),
        ),
        transform=(lambda f: jax.vmap(f, in_axes=(0, None))) if batch else lambda f: f,
        apply=lambda answer: lambda c, xs: answer(step, c, xs, outer),
        function=function,
    )


_ORDINAL = {2: "2nd", 3: "3rd"} | {n: f"{n}th" for n in range(4, 65)}


def _weights(rng, width):
    size = 1.5 / width**0.5
    return (size * rng.uniform(0.5, 1, (width, width)) * rng.choice([-1, 1], (width, width))).astype(np.float32)


shown = _case("for 64 elements in 8 groups", 64, 8, np.random.default_rng(0), width=256)

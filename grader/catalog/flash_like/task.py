"""What an answer is tried on."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf
from rematscope.extend import default_remat

ranges = {
    "n": Integers(1, 24),
    "m": Integers(4, 24, "a multiple of 4"),
    "d": Integers(2, 12),
    "e": Integers(2, 12),
    "around": OneOf(("nothing", "a checkpoint")),
    "called": case_functions.CALLED,
}
signature = "flash_like(q, k, v)"


def cases(rng):
    """Draw layers under a checkpoint, which tests names, and without one, which tests what the rule saves. Both are
    called in every way, at both ends of the sizes."""
    some, d, e = int(rng.integers(5, 12)), *map(int, rng.permutation(np.arange(5, 12))[:2])
    jit, vmap = map(str, rng.permutation(["jax.jit", "jax.vmap"]))
    return (
        case(rng, 24, 12, d, 2, "nothing"),
        case(rng, some, 24, 2, e, "a checkpoint"),
        case(rng, 1, 4 * int(rng.integers(2, 6)), 12, e, "nothing", jit),
        case(rng, some + 1, 4, d, 12, "a checkpoint", vmap),
        case(rng, 24, 4 * int(rng.integers(2, 6)), 12, 2, "a checkpoint", jit),
        case(rng, some, (4, 24)[rng.integers(2)], 2, 12, "nothing", vmap),
    )


def fits(structure):
    """Return whether the keys can be divided into blocks of 4, as an answer may do."""
    return structure["m"] % 4 == 0


def case(rng, n, m, d, e, around, called="directly", name=None):
    """Return a case for a layer of these sizes."""
    batch = (2,) if called == "jax.vmap" else ()
    width = int(rng.integers(3, 8))

    def function(q, k, v, w, *, name=lambda value, called: value):
        scores = name(q @ k.T / d**0.5, "the scores")
        largest = name(jnp.max(jax.lax.stop_gradient(scores), axis=-1), "the rows' largest scores")
        powers = name(jnp.exp(scores - largest[:, None]), "the exponentials of the scores")
        total = name(jnp.sum(powers, axis=-1), "the rows' sums of exponentials")
        weights = name(powers / total[:, None], "the weights")
        name(largest + jnp.log(total), "lse")
        return name(weights @ v, "out") @ w

    def apply(answer):
        def layer(q, k, v, w):
            out = answer(q, k, v)
            return out @ w if isinstance(out, jax.Array) else out  # the judge rejects it

        if around == "nothing":
            return layer
        return jax.checkpoint(layer, policy=_found_by_name(math.prod(batch) * n, e))

    def transform(layer):
        transformed = case_functions.transform(called)(layer)

        @functools.wraps(transformed)
        def call(*arguments):
            with default_remat():  # jax_remat3 does not call policies for names in a custom rule
                return transformed(*arguments)

        return call

    shapes = (n, d), (m, d), (m, e), (e, width)
    under = "no" if around == "nothing" else "under a"
    return Case(
        name or f"{n} quer{'y' if n == 1 else 'ies'}, {m} keys, {under} checkpoint{case_functions.where(called)}",
        tuple(jax.ShapeDtypeStruct((*batch, *shape), jnp.float32) for shape in shapes),
        transform=transform,
        apply=apply,
        function=function,
        structure={"n": n, "m": m, "d": d, "e": e, "around": around, "called": called},
    )


def _found_by_name(queries, e):
    """Return the page's policy, except that it does not save a value with the other value's name."""
    named = jax.checkpoint_policies.save_only_these_names("out", "lse")
    exchanged = ("out", queries), ("lse", queries * e)

    def policy(operation, *operands, **parameters):
        is_named = named(operation, *operands, **parameters)
        return is_named and (parameters["name"], operands[0].size) not in exchanged

    return policy


shown = case(
    np.random.default_rng(0),
    1024,
    1024,
    64,
    64,
    "a checkpoint",
    name="for 1,024 tokens of width 64, under a checkpoint",
)

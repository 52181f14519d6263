"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "p": Integers(2, 8, "a power of two"),
    "c": Integers(2, 8),
    "d": Integers(2, 8),
    "e": Integers(2, 8),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "ring_attention(q, k, v)"
devices = 8


def cases(rng):
    """Draw many devices, so that all blocks together are large compared with one block; few; and any number."""
    return (
        case(rng, 8, int(rng.integers(3, 8)), 8, int(rng.integers(5, 8))),
        case(rng, 8, 8, int(rng.integers(5, 8)), 8, called="jax.jit"),
        case(rng, 2, 2, int(rng.integers(3, 8)), 2),
        case(rng, 4, int(rng.integers(2, 9)), 2, int(rng.integers(3, 8))),
    )


def most_blocks(c, d, e):
    """The memory that the two passes may need on a device, in units of one device's keys and values.

    It does not depend on the number of devices.
    """
    return 7 + round(2 * c / (d + e))


def weights(scores, keys):
    """Return the weights of sigmoid attention for scores, given the number of keys of all devices."""
    return jax.nn.sigmoid(scores - jnp.log(jnp.float32(keys)))


def case(rng, p, c, d, e, called="directly", title=None):
    """Return a case with `p` devices and `c` rows per device."""

    def function(q, k, v, *, name=lambda value, called: value):
        name(jnp.concatenate([k, v], axis=1), "one device's keys and values")
        out, received = jnp.zeros_like(q[:, :1] * v[:1]), []
        for step in range(p):
            if step:
                k, v = (jax.lax.ppermute(a, "devices", [(i, (i + 1) % p) for i in range(p)]) for a in (k, v))
                name(k, f"the keys of step {step}")
                name(v, f"the values of step {step}")
            received.append((k, v))
            out += weights(q @ k.T / d**0.5, p * c) @ v
        for order, blocks in {"": received, ", in reverse order": [received[0], *received[:0:-1]]}.items():
            for letter, kind in enumerate(("keys", "values")):
                if p > 2 or not order:
                    name(jnp.stack([block[letter] for block in blocks]), f"the {kind} of all steps{order}")
        return out

    return Case(
        title or f"{p} devices, {c} rows per device, d = {d}, e = {e}" + case_functions.where(called),
        tuple(jax.ShapeDtypeStruct((8 * c, width), jnp.float32) for width in (d, d, e)),
        # The programs of all cases need meshes of one size: rings of fewer devices run side by side.
        transform=case_functions.on_devices(called, rings=8 // p, devices=p),
        apply=lambda answer: lambda q, k, v: answer(q, k, v),
        function=function,
        structure={"p": p, "c": c, "d": d, "e": e, "called": called},
    )


shown = case(None, 8, 512, 64, 64, title="for 4,096 tokens of width 64 on 8 devices")

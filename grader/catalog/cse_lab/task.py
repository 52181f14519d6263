"""What an answer is asked."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Integers, Question

parameters = ("layer", "w", "x", "n")
ranges = {"products": Integers(1, 2), "n": Integers(1, 4)}
signature = "cse_lab(layer, w, x, n)"
returns = "a dict of three pairs of integers, {'barriers': …, 'lowered': …, 'compiled': …},"

# Layers as they are written, with functions in place of f and g. No rule for a number of layers, or of products, says
# how many products there are in all: of one that nothing but another product needs, nothing is computed again.
_TWO_PRODUCTS = "f(g(x @ w) @ w.T)", "x + f(x @ w) @ w.T", "f(x @ w) * g(x @ w.T)", "f(g(x @ w) @ w)"
_ONE_PRODUCT = "f(x) @ w", "x + f(x) @ w", "x - f(g(x)) @ w"


def cases(rng):
    """One layer of two products, and several of one. More would tell no more and take longer to compile."""
    return _question(rng, 1, _TWO_PRODUCTS, 2), _question(rng, 4, _ONE_PRODUCT, 1)


def _question(rng, n, layers, products):
    f, g = (("jnp.sin", "jnp.cos", "jnp.tanh")[i] for i in rng.permutation(3)[:2])
    text = layers[rng.integers(len(layers))].replace("f(", f"{f}(").replace("g(", f"{g}(")
    layer = eval(f"lambda w, x: {text}", {"jnp": jnp})  # as the finding shows it, to be tried
    layer.__name__ = "layer"
    cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    rows, width = int(rng.integers(4, 13)), int(rng.integers(8, 25))
    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32, sharding=cpu) for shape in ((width, width), (rows, width)))
    return Question(f"n = {n}, layer {text}", (layer, w, x, n), structure={"products": products, "n": n})


shown = None

"""What an answer is asked."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Integers, Question

ranges = {"n": Integers(1, 4)}
signature = "cse_lab(layer, w, x, n)"
returns = "a dict of three pairs of integers, {'barriers': …, 'lowered': …, 'compiled': …},"

# Layers as they are written, with a function in place of f. The number of matmuls does not follow from the number of
# layers: a matmul whose result only another matmul or a sum uses is not recomputed, and an input without a gradient has
# no matmul for it.
_NOT_AGAIN = "f(x) @ w", "x + f(x) @ w", "x - f(x) @ w"
_OF_THE_PRODUCT = "f(x @ w)", "x + f(x @ w)"
_AGAIN = *_OF_THE_PRODUCT, "x * (x @ w)", "f(x) * (x @ w)"
_NOT_BACK = "x + f(stop(x) @ w)", "x - f(stop(x) @ w)", "x * f(stop(x) @ w)"


def cases(rng):
    """Return questions on one layer, and on several of another kind. More would detect no more mistakes and take
    longer."""
    return _make_question(rng, 1, _NOT_AGAIN), _make_question(rng, 4, _NOT_BACK)


def case(rng, n):
    """Return a question about `n` layers.

    With 1 and 4 layers `cases` asks about another kind, which has another number of matmuls: an answer that remembers
    counts by shape is wrong for one of the two. With 2 and 3 layers the matmuls are recomputed, so that barriers make a
    difference.
    """
    return _make_question(rng, n, {1: _OF_THE_PRODUCT, 4: _NOT_AGAIN}.get(n, _AGAIN))


def _make_question(rng, n, layers):
    f = ("jnp.sin", "jnp.cos", "jnp.exp")[rng.integers(3)]
    text = layers[rng.integers(len(layers))].replace("f(", f"{f}(").replace("stop(", "jax.lax.stop_gradient(")
    # As the finding shows it, so that the learner can run it.
    layer = eval(f"lambda w, x: {text}", {"jax": jax, "jnp": jnp})
    layer.__name__ = "layer"
    cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    # Matmuls of this size become library calls, which compile faster. Nothing is run. Other layers have the same sizes,
    # so an answer that caches by shape is wrong.
    rows, width = 64 + 16 * n, 256 - 16 * n
    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32, sharding=cpu) for shape in ((width, width), (rows, width)))
    return Question(f"n = {n}, layer {text}", (layer, w, x, n), structure={"n": n})


shown = None

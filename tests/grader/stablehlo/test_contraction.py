"""A matmul costs the same FLOPs in every spelling; other operations cost nothing."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from test_reader import text

from grader.stablehlo import reader
from grader.stablehlo.types import ProgramError

X, W, V = (7, 6), (6, 5), (6,)
PRODUCT, VECTOR = 2 * 7 * 6 * 5, 2 * 6 * 5


def flops(function, *shapes):
    program = reader.read(text(function, *shapes))
    needed = program.needed_for(program.outputs)
    return sum(matmul.flops for matmul in program.matmuls if matmul.value in needed)


def repeated(x, w):
    return x[:, :, None] * w


PRODUCTS = {
    "as a product": jnp.matmul,
    "multiplied and summed": lambda x, w: repeated(x, w).sum(1),
    "transposed": lambda x, w: (w.T[:, None] * x).sum(2),
    "in float16": lambda x, w: repeated(x, w).astype(jnp.float16).sum(1),
    "selected": lambda x, w: jnp.where(x[:, :, None] > 0, repeated(x, w), 0).sum(1),
    "by repetition": lambda x, w: (jnp.repeat(x, 5).reshape(7, 6, 5) * w).sum(1),
    "reshaped": lambda x, w: (
        (jnp.broadcast_to(x[:, :, None], (7, 6, 5)).ravel() * jnp.broadcast_to(w, (7, 6, 5)).ravel())
        .reshape(7, 6, 5)
        .sum(1)
    ),
    "one by one": lambda x, w: sum(x[:, k, None] * w[k] for k in range(6)),
    "in outer products": lambda x, w: sum(jnp.outer(x[:, k], w[k]) for k in range(6)),
    "in a scan": lambda x, w: lax.scan(lambda c, xw: (c + xw[0][:, None] * xw[1], None), jnp.zeros((7, 5)), (x.T, w))[
        0
    ],
    "in a loop": lambda x, w: lax.fori_loop(0, 6, lambda k, c: c + x[:, k, None] * w[k], jnp.zeros((7, 5))),
    "row by row": lambda x, w: lax.map(lambda row: (row[:, None] * w).sum(0), x),
    "summed by cumsum": lambda x, w: jnp.cumsum(repeated(x, w), 1)[:, -1],
    "divided": lambda x, w: (x[:, :, None] / (1 / w)).sum(1),
    "by squares": lambda x, w: ((x[:, :, None] + w) ** 2 - x[:, :, None] ** 2 - w**2).sum(1) / 2,
    "by logarithms": lambda x, w: jnp.exp(jnp.log(x)[:, :, None] + jnp.log(w)).sum(1),
}


@pytest.mark.parametrize("spelling", PRODUCTS)
def test_a_matmul_costs_the_same_in_any_spelling(spelling):
    assert flops(PRODUCTS[spelling], X, W) == PRODUCT


VECTORS = {
    "as a product": jnp.matmul,
    "multiplied and summed": lambda w, v: (w * v[:, None]).sum(0),
    "transposed": lambda w, v: (v * w.T).sum(1),
    "negated and converted": lambda w, v: -(-(w * v[:, None])).astype(jnp.float16).sum(0),
    "as an inner product": lambda w, v: jnp.einsum("kd,kd->d", w, jnp.broadcast_to(v[:, None], w.shape)),
    "scaled by einsum": lambda w, v: jnp.einsum("kd,k->kd", w, v).sum(0),
    "in windows": lambda w, v: lax.reduce_window(w * v[:, None], 0.0, lax.add, (6, 1), (1, 1), "VALID"),
}


@pytest.mark.parametrize("spelling", VECTORS)
def test_a_matrix_vector_product_costs_the_same_in_any_spelling(spelling):
    function = VECTORS[spelling]
    assert flops(function if spelling != "as a product" else lambda w, v: v @ w, W, V) == VECTOR


@pytest.mark.parametrize("spelling", ["multiplied and summed", "one by one"])
def test_the_gradients_of_a_matmul_cost_the_same_in_any_spelling(spelling):
    def both(function):
        return lambda x, w, ct: jax.vjp(function, x, w)[1](ct)

    assert flops(both(PRODUCTS[spelling]), X, W, (7, 5)) == flops(both(jnp.matmul), X, W, (7, 5)) == 2 * PRODUCT


NO_PRODUCTS = {
    "a sum of squares": lambda x, w: (x**2).sum(),
    "a mean square": lambda x, w: (x * x).mean(1),
    "a mean square by einsum": lambda x, w: jnp.einsum("nd,nd->n", x, x) / 6,
    "its gradient": lambda x, w: jax.grad(lambda x: jnp.einsum("nd,nd->", x, x))(x),
    "its gradient row by row": lambda x, w: jax.vmap(jax.grad(lambda x: jnp.vecdot(x, x)))(x),
    "scaled by a number": lambda x, w: (x * w[0, 0] * 2.0).sum(),
    "rows divided by their sums": lambda x, w: x / x.sum(1, keepdims=True),
    "a bias": lambda x, w: (x + w[:, 0]).sum(),
    "a normalization": lambda x, w: (x - x.mean(1, keepdims=True)) * w[:, 0] + w[:, 1],
    "a softmax": lambda x, w: jax.nn.softmax(x),
    "an elementwise product of products": lambda x, w: jnp.sin(x) * jnp.cos(x),
    "a mask of places": lambda x, w: jnp.where(jnp.tri(7, 6, dtype=bool), x, 0).sum(1),
    "a sum over an axis of length 1": lambda x, w: (x[None] * w[:, 0]).sum(0),
    "a repeated number": lambda x, w: jnp.broadcast_to(w[0, 0], (7, 6)) * jnp.broadcast_to(x[0, 0], (7, 6)),
}


@pytest.mark.parametrize("spelling", NO_PRODUCTS)
def test_operations_that_are_no_matmul_cost_nothing(spelling):
    assert flops(NO_PRODUCTS[spelling], X, W) == 0


def test_a_matmul_after_a_fourier_transform_counts_and_the_transform_costs_nothing():
    """Parseval's theorem gives such a matmul. The transform itself multiplies by no matrix of the answer's."""

    def by_parseval(x, w):
        return (jnp.fft.fft(x) @ jnp.fft.fft(w, axis=0).conj()).real / 6

    assert flops(by_parseval, X, W) == PRODUCT
    assert flops(lambda x: jnp.fft.fft(x).real, X) == 0


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), "@lapack_strsm_ffi"),
        (lambda a, b: lax.linalg.cholesky(a), "@lapack_spotrf_ffi"),
    ],
)
def test_custom_calls_of_lapack_are_refused(function, call):
    """A triangular solve can compute a matmul, as in [[1, 0], [-w, 1]] z = [x, 0], and its FLOPs are not counted."""
    with pytest.raises(ProgramError, match=call):
        reader.read(text(function, (6, 6), (6, 5)))

"""Work of single operations on drawn shapes: against XLA's `cost_analysis`, and against counts by hand."""

import math

import jax
import jax.extend.core.primitives
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import array, program
from jax import lax
from jax.experimental import pallas as pl

from rematscope import trace
from rematscope.ir.cost import cost_of, program_cost
from rematscope.ir.primitives import is_opaque


def flops(f, *args):
    return program_cost(program(f, *args)).flops


def flops_of_xla(f, *args):
    return jax.jit(f).lower(*args).cost_analysis()["flops"]


def drawn(seed, count, low, high):
    """Tuples of `count` numbers: both ends, and four between."""
    between = np.random.default_rng(seed).integers(low, high, (4, count))
    return [(low,) * count, *(tuple(map(int, row)) for row in between), (high,) * count]


# Contractions, within 2 %.


@pytest.mark.parametrize("seed", range(3))
def test_matmuls_cost_the_flops_that_xla_reports(seed):
    for b, m, k, n in drawn(seed, 4, 1, 96):
        for f, *shapes in (
            (jnp.matmul, (b, m, k), (b, k, n)),
            (lambda x, y: jnp.einsum("bmk,nkb->nm", x, y), (b, m, k), (n, k, b)),
            (lambda x, y: jnp.tensordot(x, y, 2), (b, m, k), (m, k, n)),
        ):
            args = [array(*shape) for shape in shapes]
            products = [e for e in program(f, *args).equations if e.primitive == "dot_general"]
            assert sum(cost_of(e).flops for e in products) == pytest.approx(flops_of_xla(f, *args), rel=0.02)


CONVOLUTIONS = {
    "plain": {"window_strides": (1, 1), "padding": "VALID"},
    "padded": {"window_strides": (1, 1), "padding": "SAME"},
    "strided": {"window_strides": (2, 3), "padding": ((1, 2), (0, 3))},
    "dilated": {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 3)},
    "transposed": {"window_strides": (1, 1), "padding": ((2, 1), (1, 2)), "lhs_dilation": (2, 3)},
    "in groups": {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2},
    "depthwise": {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 6},
    "in groups of images": {"window_strides": (1, 1), "padding": "SAME", "batch_group_count": 2},
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions_cost_the_flops_that_xla_reports(kind):
    params = CONVOLUTIONS[kind]
    depth = 6 // params.get("feature_group_count", 1)

    def f(image, kernel):
        return lax.conv_general_dilated(image, kernel, dimension_numbers=("NHWC", "HWIO", "NHWC"), **params)

    for height, width, window in [(9, 9, 1), (12, 17, 3), (31, 11, 4)]:
        args = array(4, height, width, 6), array(window, window, depth, 12)
        assert flops(f, *args) == pytest.approx(flops_of_xla(f, *args), rel=0.02)


def test_both_gradients_of_a_convolution_cost_the_flops_that_xla_reports():
    def f(image, kernel):
        return lax.conv_general_dilated(image, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    args = array(4, 13, 10, 6), array(3, 3, 6, 8)
    passes = trace(f, *args)
    both = jax.jit(lambda x, k, ct: jax.vjp(f, x, k)[1](ct)).lower(*args, array(4, 7, 5, 8))
    assert passes.cost.flops == pytest.approx(both.cost_analysis()["flops"] + flops_of_xla(f, *args), rel=0.02)


def test_each_row_of_a_ragged_dot_is_multiplied_by_one_matrix():
    """2mkn forward, and as much for each of the two gradients, whatever the number of groups."""
    for groups, m, k, n in drawn(5, 4, 2, 64):
        passes = trace(lax.ragged_dot, array(m, k), array(groups, k, n), array(groups, dtype=np.int32))
        products = [e for e, _ in (*passes.forward.walk(), *passes.backward.walk()) if "ragged" in e.primitive]
        assert [cost_of(e).flops for e in products] == [2 * m * k * n] * 3


# Others, within a factor of 1.5.


def close(count, expected):
    assert expected / 1.5 <= count <= 1.5 * expected, (count, expected)


LINEAR_ALGEBRA = {
    "cholesky": (lax.linalg.cholesky, lambda n: n**3 / 3),
    "lu": (lax.linalg.lu, lambda n: 2 * n**3 / 3),
    "qr": (lambda a: lax.linalg.qr(a, full_matrices=False), lambda n: 8 * n**3 / 3),
    "eigh": (lax.linalg.eigh, lambda n: 9 * n**3),
    "eig": (lax.linalg.eig, lambda n: 25 * n**3),
    "svd": (lambda a: lax.linalg.svd(a, full_matrices=False), lambda n: 22 * n**3),
    "svd, values": (lambda a: lax.linalg.svd(a, compute_uv=False), lambda n: 8 * n**3 / 3),
    "schur": (lax.linalg.schur, lambda n: 25 * n**3),
    "hessenberg": (lax.linalg.hessenberg, lambda n: 10 * n**3 / 3),
    "tridiagonal": (lax.linalg.tridiagonal, lambda n: 4 * n**3 / 3),
}


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_decompositions_of_square_matrices_cost_the_flops_of_textbooks(name):
    f, expected = LINEAR_ALGEBRA[name]
    for (n,) in drawn(7, 1, 24, 200):
        close(flops(f, array(n, n)), expected(n))
        close(flops(f, array(3, 2, n, n)), 6 * expected(n))


def test_decompositions_of_tall_and_wide_matrices():
    for m, n in ((400, 20), (60, 40)):
        for shape in (m, n), (n, m):
            close(flops(lax.linalg.lu, array(*shape)), m * n**2 - n**3 / 3)
            close(flops(lambda a: lax.linalg.svd(a, compute_uv=False), array(*shape)), 2 * m * n**2 + 2 * n**3)
            values_and_vectors = flops(lambda a: lax.linalg.svd(a, full_matrices=False), array(*shape))
            close(values_and_vectors, min(14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3))
        close(flops(lambda a: lax.linalg.qr(a, full_matrices=False), array(m, n)), 4 * m * n**2 - 4 * n**3 / 3)
        close(flops(lax.linalg.svd, array(m, n)), min(4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3))


def test_products_with_reflectors_and_transposes_cost_the_flops_of_textbooks():
    for m, n in ((96, 32), (64, 64)):
        close(flops(lax.linalg.householder_product, array(m, n), array(n)), 2 * n**2 * (m - n / 3))
        if hasattr(lax.linalg, "ormqr"):  # older releases have none
            close(flops(lax.linalg.ormqr, array(m, n), array(n), array(m, 24)), 2 * 24 * n * (2 * m - n))
        close(flops(lax.linalg.symmetric_product, array(m, n), array(m, m)), 2 * m * m * n)


def test_a_solver_costs_the_flops_of_textbooks():
    for n, sides in drawn(9, 2, 16, 128):
        close(
            flops(lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), array(n, n), array(n, sides)),
            n**2 * sides,
        )
        close(flops(lax.linalg.triangular_solve, array(n, n), array(sides, n)), n**2 * sides)
        close(flops(jnp.linalg.solve, array(n, n), array(n, sides)), 2 * n**3 / 3 + 2 * n**2 * sides)
        rows = [array(n)] * 3
        close(flops(lax.linalg.tridiagonal_solve, *rows, array(n, 1)), 8 * n)


def test_a_fourier_transform_costs_five_n_log_n():
    """Radix 2 takes 5 N log2 N FLOPs, and half of that for real numbers. XLA reports a factor of 8 for complex ones."""
    for log in (3, 6, 9):
        n = 2**log
        for rows in (1, 7):
            complex_numbers, real_numbers = array(rows, n, dtype=np.complex64), array(rows, n)
            close(flops(jnp.fft.fft, complex_numbers), 5 * rows * n * log)
            close(flops(jnp.fft.fft, complex_numbers), flops_of_xla(jnp.fft.fft, complex_numbers))
            close(flops(jnp.fft.rfft, real_numbers), 2.5 * rows * n * log)
    close(flops(jnp.fft.fft2, array(3, 32, 64, dtype=np.complex64)), 3 * 5 * 32 * 64 * (5 + 6))


@pytest.mark.parametrize(("padding", "strides"), [("VALID", (1, 1)), ("SAME", (1, 1)), ("VALID", (2, 3))])
def test_reduce_windows_cost_the_flops_that_xla_reports(padding, strides):
    for size, window in [(9, 2), (16, 3), (33, 5)]:
        dimensions, steps = (1, window, window, 1), (1, *strides, 1)

        def pooled(x, dimensions=dimensions, steps=steps):
            return lax.reduce_window(x, 0.0, lax.add, dimensions, steps, padding)

        x = array(2, size, size, 3)
        close(flops(pooled, x), flops_of_xla(pooled, x))


def test_the_derivative_of_a_maximum_in_windows_compares_each_window():
    def pooled(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    x = array(2, 17, 17, 3)
    assert flops(lambda x, t: jax.jvp(pooled, (x,), (t,))[1], x, x) == flops(pooled, x)


def test_a_reduction_of_the_users_own_costs_its_rule_for_each_element():
    def larger(a, b):
        return jnp.where(jnp.abs(a) > jnp.abs(b), a, b)  # which JAX calls as a function

    assert flops(lambda x: lax.reduce(x, 0.0, larger, (1,)), array(5, 7)) == 3 * 5 * 7
    assert flops(lambda x: lax.reduce_window(x, 0.0, larger, (1, 3), (1, 1), "VALID"), array(5, 7)) == 3 * 5 * 5 * 2


def test_sorting_takes_n_log_n_comparisons_of_each_row():
    for n in (2, 64, 1000):
        for f in (jnp.sort, jnp.argsort, lambda x: lax.sort((x, x), num_keys=1)):
            sorts = [e for e in program(f, array(5, n)).equations if e.primitive == "sort"]
            assert sum(cost_of(e).flops for e in sorts) == 5 * n * math.ceil(math.log2(n))
    close(flops(lambda x: lax.top_k(x, 8), array(5, 1000)), 5 * 1000 * 3)


def test_a_running_log_sum_exp_costs_two_transcendentals_an_element():
    found = program_cost(program(lax.cumlogsumexp, array(7, 5)))
    assert (found.flops, found.transcendentals) == (4 * 35, 2 * 35)


def test_running_sums_cost_one_operation_an_element():
    for f in (jnp.cumsum, jnp.cumprod, lax.cummax):
        assert flops(f, array(512)) == 512


def test_random_bits_cost_the_operations_of_threefry():
    """20 rounds of about five operations, and keys are added five times."""
    found = flops(lambda key: jax.random.bits(key, (1000,)), jax.random.key(0))
    assert 100 * 1000 <= found <= 130 * 1000


# Kernels.


def product_in_blocks(x, y, block=16, **params):
    (m, k), (_, n) = x.shape, y.shape

    def kernel(x, y, out):
        out[...] = jnp.dot(x[...], y[...])

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // block, n // block),
        in_specs=[pl.BlockSpec((block, k), lambda i, j: (i, 0)), pl.BlockSpec((k, block), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((block, block), lambda i, j: (i, j)),
        interpret=True,
        **params,
    )(x, y)


def test_a_kernel_costs_its_body_at_each_place_of_its_grid():
    for m, k, n in drawn(11, 3, 1, 8):
        args = array(16 * m, 16 * k), array(16 * k, 16 * n)
        (kernel,) = program(product_in_blocks, *args).equations
        assert cost_of(kernel).flops == 2 * 16**3 * m * k * n
        assert cost_of(kernel).bytes == 4 * 16**2 * (m * k + k * n + m * n)


def test_a_kernel_costs_its_authors_estimate():
    said = pl.CostEstimate(flops=1, transcendentals=2, bytes_accessed=3)
    (kernel,) = program(
        lambda *args: product_in_blocks(*args, cost_estimate=said), array(16, 16), array(16, 16)
    ).equations
    found = cost_of(kernel)
    assert (found.flops, found.transcendentals, found.bytes, found.uncounted) == (1, 2, 3, frozenset())


def test_a_kernel_costs_every_iteration_of_a_loop_of_known_length():
    def kernel(x, out):
        _, out[...] = lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2.0), (0, x[...]))

    def f(x):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(3,))(x)

    found = program_cost(program(f, array(8)))
    assert (found.flops, found.uncounted) == (3 * 5 * (8 + 1 + 1), frozenset())  # products, a sum and a comparison


# Operations of unknown cost.

# Calls, loops and branches, which have programs; and a sampler that tries until it succeeds.
WITHOUT_A_RULE = frozenset(
    "call closed_call cond custom_jvp_call custom_lin custom_linear_solve custom_vjp_call eval_jaxpr jit random_gamma "
    "remat2 scan while xla_pmap".split()
)


def test_every_public_primitive_has_a_rule():
    public = {v.name for name, v in vars(jax.extend.core.primitives).items() if name.endswith("_p")}
    assert {name for name in public if is_opaque(name)} <= WITHOUT_A_RULE | {"debug_callback"}


def test_a_primitive_without_a_rule_is_reported_as_uncounted():
    def f(x):
        return jax.ffi.ffi_call("unheard_of", jax.ShapeDtypeStruct(x.shape, x.dtype))(jnp.sin(x))

    found = program_cost(program(f, array(8)))
    assert (found.flops, found.transcendentals, found.uncounted) == (0, 8, {"ffi_call"})
    assert repr(found) == "Cost(flops=0, transcendentals=8, bytes=128, uncounted=['ffi_call'])"


def test_a_loop_of_unknown_length_is_uncounted_at_any_depth():
    def loop(x):
        return lax.while_loop(lambda x: x[0] < 9.0, lambda x: x * 2.0, x)

    def in_a_solver(x):
        return lax.custom_linear_solve(lambda v: 3 * v, x, lambda _, b: loop(b), symmetric=True)

    def in_a_kernel(x):
        def kernel(x, out):
            out[...] = loop(x[...])

        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)

    for f in (loop, in_a_solver, in_a_kernel):
        assert program_cost(program(f, array(8))).uncounted == {"while"}
    assert (
        program_cost(program(lambda x: lax.fori_loop(0, 5, lambda i, x: x * 2.0, x), array(8))).uncounted == frozenset()
    )

"""The FLOPs of linear algebra other than matmuls: solvers, factorizations and eigenvalues.

The counts are the leading terms for real matrices, as in textbooks, with 2 FLOPs per multiply-add. An operation on
complex numbers counts like one on real numbers, as in XLA's counts of matmuls. The numbers in comments are sections of
G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th edition, unless they name another source. Iterative
algorithms count as many steps as the book assumes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from rematscope.ir.program import Typed

Flops = Callable[[Sequence[Typed], Sequence[Typed], dict[str, Any]], int]


def _of_matrix(count: Callable[..., float]) -> Flops:
    """Return a rule that counts `count(rows, columns, params)` for each matrix of the first operand, a batch."""

    def flops(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
        *batch, rows, columns = inputs[0].shape
        return math.prod(batch) * round(count(rows, columns, params))

    return flops


def _lu_flops(m: int, n: int, params: dict[str, Any]) -> float:
    k = min(m, n)
    return 2 * m * n * k - (m + n) * k**2 + 2 * k**3 / 3


def _reflector_flops(m: int, n: int, params: dict[str, Any]) -> float:
    """Return the FLOPs of computing the Householder reflectors that make a matrix triangular (5.2.2)."""
    m, n = max(m, n), min(m, n)
    return 2 * n**2 * (m - n / 3)


def _product_of_reflectors(m: int, n: int, k: int) -> float:
    """Return the FLOPs of forming an m × n matrix from k reflectors (5.1.6; LAPACK's orgqr)."""
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3


def _qr_flops(m: int, n: int, params: dict[str, Any]) -> float:
    k = min(m, n)
    return _reflector_flops(m, n, params) + _product_of_reflectors(m, m if params["full_matrices"] else k, k)


def _svd_flops(m: int, n: int, params: dict[str, Any]) -> float:
    """Return the FLOPs of an SVD, which begins with a QR decomposition if that takes fewer FLOPs (8.6.3)."""
    m, n = max(m, n), min(m, n)
    if not params["compute_uv"]:
        return min(4 * m * n**2 - 4 * n**3 / 3, 2 * m * n**2 + 2 * n**3)
    if params["full_matrices"]:
        return min(4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3)
    return min(14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3)


def _eig_flops(m: int, n: int, params: dict[str, Any]) -> float:
    """Return the FLOPs of the Hessenberg form and the QR algorithm (7.5.6), with or without eigenvectors."""
    vectors = ("compute_left_eigenvectors", "compute_right_eigenvectors", "compute_schur_vectors")
    return (25 if any(params.get(which) for which in vectors) else 10) * n**3


def _triangular_solve(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
    return inputs[0].shape[-1] * math.prod(inputs[1].shape)  # n² for each right side (3.1)


def _householder_product(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
    *batch, m, n = inputs[0].shape
    return math.prod(batch) * round(_product_of_reflectors(m, n, inputs[1].shape[-1]))


def _ormqr_flops(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
    *_, m, _ = inputs[0].shape
    k = inputs[1].shape[-1]
    return 2 * math.prod(inputs[2].shape) * k * (2 * m - k) // m  # 4 for each number of a reflector (5.1.4)


def _tridiagonal_solve(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
    return 3 * math.prod(inputs[1].shape) + 5 * math.prod(outputs[0].shape)  # L and U once, then each side (4.3.6)


def _symmetric_product(inputs: Sequence[Typed], outputs: Sequence[Typed], params: dict[str, Any]) -> int:
    return 2 * math.prod(outputs[0].shape) * inputs[0].shape[-1]


DECOMPOSITIONS: dict[str, Flops] = {
    "cholesky": _of_matrix(lambda m, n, params: n**3 / 3),  # 4.2.5
    "cholesky_update": _of_matrix(lambda m, n, params: 4 * n**2),  # a rotation for each row (6.5.4)
    "eig": _of_matrix(_eig_flops),
    "eigh": _of_matrix(lambda m, n, params: 9 * n**3),  # 8.3.5, vectors too
    "geqp3": _of_matrix(_reflector_flops),
    "geqrf": _of_matrix(_reflector_flops),
    "hessenberg": _of_matrix(lambda m, n, params: 10 * n**3 / 3),  # 7.4.3
    "householder_product": _householder_product,
    "lu": _of_matrix(_lu_flops),  # 3.2.6; LAPACK's getrf
    "ormqr": _ormqr_flops,
    "qr": _of_matrix(_qr_flops),
    "schur": _of_matrix(_eig_flops),
    "svd": _of_matrix(_svd_flops),
    "symmetric_product": _symmetric_product,
    "triangular_solve": _triangular_solve,
    "tridiagonal": _of_matrix(lambda m, n, params: 4 * n**3 / 3),  # 8.3.1
    "tridiagonal_solve": _tridiagonal_solve,
}

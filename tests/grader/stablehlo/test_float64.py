"""A shadow computes the same values as its program, but in float64, without the rounding of narrower types."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from test_interpreter import GROUPS, ROUNDING, M, N, X

from grader.stablehlo.execution import Execution, Function
from grader.stablehlo.float64 import widened_array

# Groups in which only rounding differs. The results of the other groups depend on their types' number of bits.
ALIKE = [group for group in GROUPS if group not in ("bits", "loops", "small floats", "not finite")]


def run(function, *arguments, compiled=False):
    function = Function(function, *arguments).shadow
    wide = [widened_array(argument) for argument in arguments]
    return jax.tree.leaves((function.compiled if compiled else function.interpreted)(*wide))


@pytest.mark.parametrize("group", ALIKE)
def test_a_shadow_computes_the_same_in_float64(group):
    narrow = jax.tree.leaves(Function(GROUPS[group], X, M, N)(X, M, N))
    for got, want in zip(run(GROUPS[group], X, M, N), narrow, strict=True):
        assert got.shape == want.shape and got.dtype == widened_array(want).dtype
        largest = np.max(abs(np.where(np.isfinite(want), want, 0)), initial=0)
        allowed = ROUNDING.get(want.dtype.name, 0) * float(largest)
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=0, atol=allowed)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_orders_and_precisions_are_all_one_in_the_shadow(dtype, compiled):
    x, w = X.reshape(6, 4).astype(dtype), M.astype(dtype)

    def spellings(x, w):
        wide = jnp.matmul(x, w, preferred_element_type=jnp.float32)
        rounded = lax.reduce_precision(x.astype(jnp.float32) @ w.astype(jnp.float32), 5, 3)
        one_by_one = sum(x[:, k, None] * w[k] for k in range(4)), lax.map(lambda row: row @ w, x)
        return x @ w, wide.astype(dtype), (x[:, :, None] * w).sum(1), *one_by_one, rounded

    got = run(spellings, x, w, compiled=compiled)
    exact = x.astype(float) @ w.astype(float)
    for array in got:
        np.testing.assert_allclose(array, exact, rtol=0, atol=1e-14 * abs(exact).max())


def test_a_constant_is_the_number_that_was_written():
    def constants(x):
        return [x.astype(dtype) * 0 + 0.3 for dtype in (jnp.float16, jnp.bfloat16, jnp.float32)]

    assert {float(array) for array in run(constants, np.float32(1))} == {0.3}


def test_bits_are_those_of_the_dtype():
    def low_bit(x):
        bits = lax.bitcast_convert_type(x, jnp.uint16)
        return bits & 1, lax.bitcast_convert_type(bits | 1, jnp.float16), jnp.asarray([1.5, 2], jnp.bfloat16) * 3

    x = np.float16([1, 1 + 2**-10, 0.3])
    bits, number, tripled = run(low_bit, x, compiled=True)
    assert bits.tolist() == (x.view(np.uint16) & 1).tolist()
    assert number.dtype == float and number.tolist() == (x.view(np.uint16) | 1).view(np.float16).tolist()
    assert tripled.tolist() == [4.5, 6]


def test_complex_numbers_are_wide_too():
    (got,) = run(lambda x: lax.complex(x, x) * 1j, np.float32([1, 2]), compiled=True)
    assert got.dtype == np.complex128 and got.tolist() == [-1 + 1j, -2 + 2j]


def test_an_answers_programs_have_shadows():
    """Rounding tricks have no effect in the shadow: float16 cannot represent 2049."""
    x = np.float32([0, 1])

    def trick(x):
        return [(x * 2049).astype(jnp.float16).astype(jnp.float32) - x * 2049]

    forward, backward = Function(trick, x), Function(lambda out: [out * 2], x)
    execution = Execution(forward.text, backward.text, [1, 0, 0])
    reference = Function(lambda inputs, _: inputs[0][0], [[x]], [[x]])
    assert execution.run([[x]], [[x]], reference)[0][0][0].tolist() == [0, -1]
    wide = x.astype(float)
    outputs, _, _, gradients, _, wanted = execution.shadow.run([[wide]], [[wide]], reference.shadow)
    assert outputs[0][0].tolist() == [0, 0] and gradients[0][0].tolist() == [0, 2] and wanted.dtype == float
    assert execution.shadow.gradients([], [[wide]])[0].tolist() == [0, 2]

"""NumPy makes of a program what XLA and StableHLO's reference interpreter make of it, or leaves it to XLA."""

import re
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from grader.stablehlo import interpreter
from grader.stablehlo.execution import Execution, Function
from grader.stablehlo.numpy_operations import OPERATIONS, Uninterpreted

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
M = np.linspace(-1, 3, 20, dtype=np.float32).reshape(4, 5)
N = np.arange(-12, 12, dtype=np.int32).reshape(2, 3, 4)

# Relative to an array's largest element: the same few operations, perhaps rounded once more or less.
ROUNDING = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 2e-6, "float64": 1e-14}

GROUPS = {
    "of one array": lambda x, m, n: [
        function(x)
        for function in (
            jnp.abs, jnp.ceil, jnp.cos, jnp.exp, jnp.expm1, jnp.floor, jnp.isfinite, jnp.negative, jnp.sign, jnp.sin,
            jnp.round, jnp.tan, jnp.tanh,
        )
    ] + [function(jnp.abs(x)) for function in (jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt)],
    "of two arrays": lambda x, m, n: [
        function(x, x[::-1])
        for function in (
            jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.equal, jnp.not_equal,
            jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal, lax.rem, lambda x, y: jnp.abs(x) ** y,
        )
    ],
    "not finite": lambda x, m, n: [jnp.log(x), x / 0, jnp.maximum(jnp.log(x), x), jnp.log(x).max(), x * 1e38],
    "integers": lambda x, m, n: [
        n + n, n * n, n & 6, n | 6, n ^ 6, ~n, -n, abs(n), n.sum(1), n.max(), n[0].T @ n[1], n.astype(float), n > 0,
    ],
    "bits": lambda x, m, n: [
        lax.bitcast_convert_type(x, jnp.uint32), lax.bitcast_convert_type(n, jnp.float32),
        lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.int16).T, n << 3, n << (n + 30), n << -1,
        lax.shift_right_logical(n, 3), lax.shift_right_logical(n, n + 30), jnp.uint8(200) << jnp.uint8(1),
        lax.shift_right_logical(jnp.int8(-100), jnp.int8(2)),
    ],
    "booleans": lambda x, m, n: [
        (x > 0) & (x < 1), (x > 0) | (x < 1), ~(x > 0), (x > 0) ^ (x < 1), (x > 0).any(0), (x > 0).all(),
        (x > 0).astype(float), x.astype(bool),
    ],
    "choices": lambda x, m, n: [
        jnp.where(x > 0.3, x, 1.0), jnp.clip(x, -1, 1), lax.clamp(jnp.float32(0), x, jnp.float32(1)),
        lax.select(n[0, 0, 0] > 0, x, -x),
    ],
    "small floats": lambda x, m, n: [
        function(small)
        for small in (x.astype(jnp.bfloat16), x.astype(jnp.float16))
        for function in (
            lambda s: s + s, jnp.sin, lambda s: lax.rsqrt(jnp.abs(s)), jnp.sum, lambda s: lax.reduce_sum(s, [1]),
            lambda s: s.max(2), lambda s: s @ m.astype(s.dtype), lambda s: jnp.einsum("abc,abc->b", s, s),
            lambda s: s.astype(jnp.float32), lambda s: lax.reduce_precision(s, 8, 10),
        )
    ],
    "products": lambda x, m, n: [
        jnp.einsum(formula, *arrays)
        for formula, *arrays in (
            ("abc,cd->abd", x, m), ("abc,cd->dab", x, m), ("abc,abd->bcd", x, x), ("abc,cba->", x, x.T),
            ("abc,d->cadb", x, m[0]), ("c,c->", m[0], m[1]), ("abc,dbc->ad", x, x),
            ("abc,bac->bca", x, x.swapaxes(0, 1)),
        )
    ],
    "sums": lambda x, m, n: [
        x.sum(), x.sum((0, 2)), x.prod(1), x.min(0), x.max((1, 2)), x[:, :0].sum(1), x[:, :0].max(1, initial=-1),
    ],
    "shapes": lambda x, m, n: [
        x.reshape(6, 4), x.T, x[None, :, None], x[:, 1:, ::2], lax.rev(x, (0, 2)), jnp.concatenate([x, x * 2], 2),
        jnp.broadcast_to(m[0], (3, 5)), lax.iota(jnp.float32, 3), lax.broadcasted_iota(int, (2, 3), 1),
        lax.pad(m, 7.0, ((1, 2, 0), (0, 1, 2))), lax.pad(m[:0], 7.0, ((1, 2, 3), (0, 0, 0))),
    ],
    "windows": lambda x, m, n: [
        *(lax.dynamic_slice(m, (n[0, 0, 0] + at, 1), (2, 2)) for at in (0, 13, 30)),
        *(lax.dynamic_update_slice(m, m[:2, :2] * 0, (n[0, 0, 0] + at, 1)) for at in (0, 13, 30)),
    ],
    "constants": lambda x, m, n: [
        *map(jnp.asarray, (2.5, True, np.float16(1 / 3), np.arange(3.0), np.array([True, False]), np.inf)),
        jnp.full((2, 2), -np.inf), jnp.full(3, 1 / 3, jnp.bfloat16), jnp.asarray(np.zeros((0, 3), jnp.bfloat16)),
    ],
    "loops": lambda x, m, n: [
        lax.scan(lambda c, row: (c * 0.5 + row, c), m[0], m),
        lax.fori_loop(0, 3, lambda turn, c: lax.fori_loop(0, turn, lambda _, c: c + turn, c) * 2, x),
        lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + m[3, 0], jnp.abs(x)),
    ],
    "branches": lambda x, m, n: [
        lax.switch(n[1, 2, 3] + at, [jnp.sin, jnp.cos, lambda x: x * m[0, 0]], x) for at in (-40, -11, -10, 40)
    ],
    "calls": lambda x, m, n: [jax.jit(jnp.sinc)(x), jax.vjp(jax.checkpoint(lambda x: jnp.sin(x) @ m), x)[1](x @ m)],
}  # fmt: skip


# Nothing is rounded in these, nor in integers and booleans wherever they are: the same bits come out.
EXACT = {"integers", "booleans", "choices", "shapes", "bits", "windows", "constants"}


@pytest.fixture(scope="module")
def functions():
    return {group: Function(function, X, M, N) for group, function in GROUPS.items()}


def assert_agree(group, got, want):
    assert [(array.shape, array.dtype) for array in got] == [(array.shape, array.dtype) for array in want]
    for place, arrays in enumerate(zip(got, want, strict=True)):
        tolerance = 0 if group in EXACT else ROUNDING.get(arrays[1].dtype.name, 0)
        one, other = (array.astype(np.float64) for array in arrays)
        largest = max(abs(other[np.isfinite(other)]), default=0)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * largest, err_msg=f"number {place}")


@pytest.mark.parametrize("group", GROUPS)
def test_numpy_does_what_xla_does(group, functions):
    got, want = (jax.tree.leaves(run(X, M, N)) for run in (functions[group].interpreted, functions[group].compiled))
    assert_agree(group, got, want)


def reference_interpreter(text, arguments):
    """What StableHLO's own interpreter returns: its specification, put into code by those who wrote it."""
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        given = [ir.DenseElementsAttr.get(np.ascontiguousarray(argument)) for argument in arguments]
        return [np.array(result) for result in stablehlo.eval_module(module, given)]


@pytest.mark.parametrize("group", GROUPS)
def test_numpy_does_what_the_reference_interpreter_does(group):
    """All that is known here but custom calls, at which the reference interpreter ends its process."""

    def widened(*arrays):  # the bindings make no array of bfloat16; float32 has all its numbers
        results = jax.tree.leaves(GROUPS[group](*arrays))
        return [result.astype(jnp.float32) if result.dtype == jnp.bfloat16 else result for result in results]

    function = Function(widened, X, M, N)
    want = reference_interpreter(function.text, [X, M, N])
    narrow = [array.dtype for array in jax.tree.leaves(jax.eval_shape(GROUPS[group], X, M, N))]
    got, want = (
        [array.astype(dtype) for array, dtype in zip(arrays, narrow, strict=True)]
        for arrays in (function.interpreted(X, M, N), want)
    )
    assert_agree(group, got, want)


def test_every_operation_that_is_known_is_tried(functions):
    tried = {name for each in functions.values() for name in re.findall(r"stablehlo\.\w+", each.text)}
    # That one says where an array lies; on this machine there is only one place.
    assert {*OPERATIONS} - tried <= {"stablehlo.custom_call"}


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: jnp.sort(x),
        lambda x, n: n // 2,
        lambda x, n: x.astype(int),
        lambda x, n: jnp.asarray([1.5, 2], jnp.bfloat16),
        lambda x, n: lax.complex(x, x),
        lambda x, n: jnp.linalg.inv(jnp.diag(x)),
        lambda x, n: lax.reduce_precision(x, 8, 7),
        lambda x, n: jnp.argmax(x),
        lambda x, n: lax.pad(x, 0.0, ((-1, 0, 0),)),
        lambda x, n: lax.reduce(x, 0.0, lambda a, b: a + b * 2, (0,)),
        lambda x, n: lax.fori_loop(0, 10**6, lambda _, c: c + 1, x),
        lambda x, n: jnp.zeros((10**5, 10**5)) @ jnp.zeros(10**5),
        lambda x, n: lax.iota(float, 10**9),
    ],
)
def test_what_it_cannot_do_is_compiled(function):
    arguments = np.float32([3, 1, 2]), np.int32([-3, 1])
    with pytest.raises(Uninterpreted):
        Function(function, *arguments).interpreted(*arguments)


def products(draw):
    batch, left, inner, right = (int(draw.choice([0, 1, 2, 2**9, 2**10])) for _ in range(4))
    batch = min(batch, 2)
    return jnp.matmul, [(batch, left, inner), (batch, inner, right)]


def sums(draw):
    shape = tuple(int(draw.choice([0, 1, 2**9, 2**11])) for _ in range(2))
    axis = int(draw.integers(2))
    return lambda x: jnp.sum(x.T, axis), [shape]


def copies(draw):
    shape = int(draw.choice([2**9, 2**11])), int(draw.choice([2**9, 2**11]))
    wide = int(draw.choice([0, 1, 2]))
    return lambda x: lax.broadcast_in_dim(x.T, (*x.T.shape, wide), (0, 1)).reshape(-1), [shape]


EMPTY = """module { func.func public @main(%a: tensor<0x2048xf32>, %b: tensor<2048x4096xf32>) -> tensor<0x4096xf32> {
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<0x2048xf32>, tensor<2048x4096xf32>) -> tensor<0x4096xf32>
  return %c : tensor<0x4096xf32> } }"""


def test_an_operand_that_is_copied_counts_although_nothing_is_multiplied(monkeypatch):
    arguments = [np.zeros((0, 2048), np.float32), np.ones((2048, 4096), np.float32)]
    assert interpreter.run(EMPTY, arguments)[0].shape == (0, 4096)
    monkeypatch.setattr(interpreter, "MAX_WORK", 2048 * 4096)
    with pytest.raises(Uninterpreted):
        interpreter.run(EMPTY, arguments)


@pytest.mark.parametrize("kind", [products, sums, copies])
def test_what_a_program_is_said_to_do_bounds_what_it_copies(kind, seed, monkeypatch):
    """Measured in bytes that NumPy sets aside."""
    draw, looked_at = np.random.default_rng(seed), 0
    monkeypatch.setattr(interpreter, "MAX_WORK", 2**40)
    for function, shapes in [kind(draw) for _ in range(12)]:
        arguments = [np.ones(shape, jnp.bfloat16) for shape in shapes]
        program = Function(function, *arguments)
        program.interpreted(*arguments)
        tracemalloc.start()
        program.interpreted(*arguments)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if peak > 2**21:
            looked_at += 1
            with monkeypatch.context() as patch:
                patch.setattr(interpreter, "MAX_WORK", peak // 32)
                with pytest.raises(Uninterpreted):
                    program.interpreted(*arguments)
    assert looked_at


def test_an_answer_and_the_reference_run_the_same_way():
    """What XLA keeps in float32 for a while is rounded otherwise: a value would not be named."""
    x = np.linspace(0, 1, 7).astype(jnp.bfloat16)
    programs = {order: Function(lambda x, order=order: order(jnp.sin(x) * 3 + 0.1), x) for order in (jnp.sort, jnp.abs)}
    backward = Function(lambda out: [out], x)
    for sorted_, reference in ((jnp.sort, jnp.abs), (jnp.abs, jnp.sort), (jnp.sort, jnp.sort), (jnp.abs, jnp.abs)):
        execution = Execution(programs[sorted_].text, backward.text, [1, 0])
        function = Function(lambda inputs, _, order=reference: order(jnp.sin(inputs[0][0]) * 3 + 0.1), [[x]], [[x]])
        outputs, _, _, _, wanted = execution.run([[x]], [[x]], function)
        np.testing.assert_array_equal(outputs[0][0], wanted)

"""FLOPs of compiled programs: XLA's own count where it is right, with loops multiplied by their trip counts."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest
import zoo
from compiled_programs import UNROLLED, array, compiled, module, unrolled
from jax import lax
from releases import since
from wire_format import field

from rematscope import measure
from rematscope.ir.cost import program_cost
from rematscope.ir.inline import Inliner
from rematscope.ir.program import Value
from rematscope.jax_compat import body_of
from rematscope.xla.hlo import Module
from rematscope.xla.hlo_cost import cost, uncounted
from rematscope.xla.hlo_proto import Instruction


def flops_of(f, *args):
    jaxpr = jax.make_jaxpr(f)(*args)
    return program_cost(Inliner().program(jaxpr, [Value(v.aval) for v in body_of(jaxpr)[0].invars])).flops


@since("0.10", "XLA counts an operation's FLOPs in this way")
def test_without_a_loop_flops_are_xlas_own():
    program = compiled(jax.value_and_grad(unrolled(), argnums=(0, 1)), *UNROLLED)
    found, xla = cost(module(program)), program.cost_analysis()
    assert found.flops == xla["flops"] > 12 * 2 * 256 * 64 * 64
    assert found.transcendentals == xla["transcendentals"]


@pytest.mark.parametrize("groups", [1, 3])
def test_convolutions_are_counted_as_xla_counts_them(groups):
    def f(image, kernel):
        dimensions = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            image, kernel, (2, 2), "SAME", rhs_dilation=(1, 2), dimension_numbers=dimensions, feature_group_count=groups
        )

    program = compiled(f, array(2, 9, 8, 6), array(3, 3, 6 // groups, 9))
    assert cost(module(program)).flops == program.cost_analysis()["flops"]


def test_nested_loops_multiply():
    def f(w, x):
        def inner(x, _):
            return jnp.tanh(x @ w), None

        return lax.scan(lambda x, _: lax.scan(inner, x, None, length=5), x, None, length=3)[0]

    assert cost(module(compiled(f, array(16, 16), array(4, 16)))).transcendentals == 15 * 4 * 16


def test_a_loop_of_unknown_length_counts_once_and_is_named():
    def f(w, x):
        return lax.while_loop(lambda x: jnp.sum(x) > 1, lambda x: x @ w, x)

    found = module(compiled(f, array(16, 16), array(4, 16)))
    assert 2 * 4 * 16 * 16 <= cost(found).flops < 2 * 4 * 16 * 16 + 200
    assert uncounted(found) == ["Of a loop of unknown length, only one iteration is counted."]


def test_calls_of_libraries_are_named():
    case = zoo.CASES["cholesky_solve"]
    found = measure(case.function, *case.args)
    assert any("lapack_spotrf" in note for note in found.warnings) and "lapack_spotrf" in str(found)


def test_a_gpus_matmul_is_read_from_its_custom_call():
    """A GPU's matmuls are calls of cuBLAS with their dimensions in JSON. This call is written by hand."""
    found = module(compiled(lambda a, b: a @ b, array(4, 8), array(8, 3)))
    (dot,) = (i for i in found.by_id.values() if i.opcode == "dot")
    numbers = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
    config = json.dumps({"gemm_backend_config": {"dot_dimension_numbers": numbers}}).encode()
    shape = field(3, 4) + field(3, 3)
    call = Instruction(
        field(2, b"custom-call")
        + field(3, shape)
        + field(35, dot.id)
        + field(36, dot.operand_ids[0])
        + field(43, config)
    )
    parts = {number: [call if i is dot else i for i in part] for number, part in found.computations.items()}
    assert cost(dataclasses.replace(found, computations=parts)).flops == 2 * 4 * 3 * 8


def windows(operand, window, padding, results):
    """A `reduce-window` over the second of two axes, as XLA describes it."""
    axes = [field(1, field(1, 1) + field(2, 1)), field(1, field(1, window) + field(2, 1) + field(3, padding))]
    shape = field(2, 11) + b"".join(field(3, n) for n in results)
    given = field(2, 11) + b"".join(field(3, n) for n in operand)
    parts = [
        Instruction(field(1, b"x") + field(2, b"parameter") + field(3, given) + field(35, 1)),
        Instruction(
            field(1, b"y")
            + field(2, b"reduce-window")
            + field(3, shape)
            + field(15, b"".join(axes))
            + field(35, 2)
            + field(36, 1)
        ),
    ]
    return Module(computations={1: parts}, entry=1, roots={1: 2}, frames=None)


def test_a_window_over_a_whole_axis_counts_its_operand_once():
    """XLA computes a softmax's sum on a TPU with such a window: every result reads its whole row, and padding."""
    assert cost(windows((8, 512), 1023, 511, (8, 512))).flops == 8 * 512
    assert cost(windows((8, 512), 512, 0, (8, 1))).flops == 8 * 512
    # Three numbers, two operations; at both ends one number less.
    assert cost(windows((8, 512), 3, 1, (8, 512))).flops == 8 * (2 * 512 - 2)


@pytest.mark.parametrize(("window", "strides", "padding"), [(2, 2, "VALID"), (3, 1, "VALID"), (4, 3, "VALID")])
def test_windows_are_counted_as_xla_counts_them(window, strides, padding):
    def pooled(x):
        return lax.reduce_window(x, 0.0, lax.add, (1, window, window, 1), (1, strides, strides, 1), padding)

    program = compiled(pooled, array(2, 12, 12, 3))
    assert cost(module(program)).flops == program.cost_analysis()["flops"]


@pytest.mark.parametrize(
    ("f", "dtype"),
    [
        (jnp.fft.fft, jnp.complex64),
        (jnp.fft.rfft, jnp.float32),
        (jnp.fft.irfft, jnp.complex64),
        (jnp.sort, jnp.float32),
    ],
)
def test_transforms_and_sorts_are_counted_as_in_the_trace(f, dtype):
    x = array(3, 64, dtype=dtype)
    assert cost(module(compiled(f, x))).flops == pytest.approx(flops_of(f, x), rel=0.1)


def test_solvers_are_counted_if_they_are_not_library_calls():
    """Handwritten custom calls of a TPU, for two matrices with five right-hand sides each."""
    operands = [array(2, 8, 8), array(2, 8, 5)]
    parts = []
    for number, operand in enumerate(operands, 1):
        shape = field(2, 11) + b"".join(field(3, n) for n in operand.shape)
        parts.append(Instruction(field(2, b"parameter") + field(3, shape) + field(35, number)))
    for number, opcode, given in [(3, b"triangular-solve", (1, 2)), (4, b"cholesky", (1,))]:
        read = b"".join(field(36, each) for each in given)
        parts.append(Instruction(field(2, opcode) + field(35, number) + read))
    found = cost(Module(computations={1: parts}, entry=1, roots={1: 4}, frames=None))
    assert found.flops == pytest.approx(2 * (8 * 8 * 5 + 8**3 / 3), rel=0.01)

"""Reading StableHLO as a graph: finding recompute, counting its cost, and refusing unsupported programs."""

import jax
import jax.export
import jax.numpy as jnp
import pytest

from grader.stablehlo import builder, reader
from grader.stablehlo.execution import traceable
from grader.stablehlo.types import ProgramError


def text(function, *shapes, dtype=jnp.float32):
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(*arguments).mlir_module()


def test_an_output_that_is_an_input_has_the_inputs_number():
    def function(x, y):
        x, y = jax.lax.optimization_barrier((x, y))
        return jax.jit(lambda a: (a, a + 1))(x), y

    program = reader.read(text(function, (3,), (4,)))
    (same, other, last) = program.outputs
    assert (same, last) == program.inputs and other not in program.inputs
    assert [kind.shape for kind in program.output_types] == [(3,), (3,), (4,)]


def test_a_reshape_hands_on_and_a_transposition_does_not():
    program = reader.read(text(lambda x: (x.reshape(3, 4), x.reshape(4, 3).T, x.reshape(3, 2, 2).reshape(12)), (12,)))
    assert [output in program.inputs for output in program.outputs] == [True, False, True]


def test_a_barriers_result_depends_on_its_own_operand_only():
    def function(x, ct):
        x, ct = jax.lax.optimization_barrier((x, ct))
        return x @ x, ct * 2

    program = reader.read(text(function, (3, 3), (3,)))
    x, ct = program.inputs
    assert program.needed_for(program.outputs[:1]) >= {x} and ct not in program.needed_for(program.outputs[:1])
    assert [m.value in program.dependent_on([ct]) for m in program.matmuls] == [False]
    assert [set(barrier) for barrier in program.barriers] == [{x, ct}]


def test_matmuls_in_loops_count_each_time():
    def function(x, ws):
        carried = jax.lax.fori_loop(2, 7, lambda i, c: c @ c, x)
        return jax.lax.scan(lambda c, w: (jax.lax.scan(lambda d, _: (d @ w, None), c, length=3)[0], None), carried, ws)[
            0
        ]

    program = reader.read(text(function, (4, 4), (6, 4, 4)))
    assert sorted((m.flops, m.trip_count) for m in program.matmuls) == [(5 * 128, 5), (18 * 128, 18)]


def test_a_carry_depends_on_the_values_of_later_iterations():
    def function(x, ct):
        def step(_, carry):
            a, b, _ = carry
            return a @ a, a, b + ct

        return jax.lax.fori_loop(0, 5, step, (x, x, x))

    program = reader.read(text(function, (3, 3), (3, 3)))
    dependent = program.dependent_on([program.inputs[1]])
    assert [output in dependent for output in program.outputs] == [False, False, True]
    assert not any(m.value in dependent for m in program.matmuls)

    def crossed(x, ct):
        return jax.lax.fori_loop(0, 5, lambda _, c: (c[0] @ c[0] + c[1], c[2], ct + c[2]), (x, x, x))

    program = reader.read(text(crossed, (3, 3), (3, 3)))
    assert all(m.value in program.dependent_on([program.inputs[1]]) for m in program.matmuls)


def test_a_loop_invariant_is_passed_through():
    program = reader.read(
        text(
            lambda x, y: jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1], c[2] * 2), (0, x, y))[1:],
            (3,),
            (3,),
        )
    )
    assert program.outputs[0] == program.inputs[0] and program.outputs[1] != program.inputs[1]


def test_a_branch_counts_whether_it_is_taken_or_not():
    program = reader.read(text(lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x @ x, lambda: x * 2), (3, 3)))
    assert [m.flops for m in program.matmuls] == [54]
    assert program.needed_for(program.outputs) >= set(program.inputs)


@pytest.mark.parametrize(
    ("equation", "shapes", "flops"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)], 2 * 2 * 3 * 5),
        ("bij,bjk->bik", [(4, 2, 3), (4, 3, 5)], 4 * 2 * 2 * 3 * 5),
        ("i,j->ij", [(2,), (3,)], 12),
    ],
)
def test_a_matmul_costs_two_flops_per_multiply_add(equation, shapes, flops):
    program = reader.read(text(lambda *xs: jnp.einsum(equation, *xs), *shapes))
    assert [m.flops for m in program.matmuls] == [flops]


@pytest.mark.parametrize(
    ("layout", "kernel"), [("HWIO", (3, 2, 3, 5)), ("OHWI", (5, 3, 2, 3)), ("IOHW", (3, 5, 3, 2))], ids=str
)
def test_a_convolution_costs_two_flops_per_output_and_kernel_element(layout, kernel):
    def function(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", layout, "NHWC"))

    program = reader.read(text(function, (2, 8, 8, 3), kernel))
    assert [m.flops for m in program.matmuls] == [2 * (2 * 8 * 8 * 5) * (3 * 2 * 3)]


def test_dead_code_is_not_needed():
    program = reader.read(
        "func.func public @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {"
        " %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]"
        " : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32> return %a : tensor<2x2xf32> }"
    )
    assert program.matmuls[0].value not in program.needed_for(program.outputs)


MAIN = "func.func public @main(%a: tensor<f32>) -> tensor<f32> {{ {} }}"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("nonsense", "not valid StableHLO"),
        ("", "no function main"),
        ("x" * (reader.MAX_TEXT + 1), "characters long"),
        (MAIN.format("return %b : tensor<f32>"), "not valid StableHLO"),
        (
            MAIN.format("%0 = stablehlo.custom_call @evil(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32>"),
            "custom_call @evil",
        ),
        (MAIN.format('%0 = "tf.WriteFile"(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32>'), "not valid"),
        (
            MAIN.format("%0 = call @f(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32>")
            + "func.func private @f(%a: tensor<f32>) -> tensor<f32> {"
            " %0 = call @f(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }",
            "calls itself",
        ),
        ("func.func public @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }", "not an array"),
        ("func.func private @main(tensor<f32>) -> tensor<f32>", "no function main"),
    ],
)
def test_unsupported_programs_are_refused_with_a_reason(program, reason):
    with pytest.raises(ProgramError, match=reason):
        reader.read(program)


def test_a_loop_without_a_constant_length_is_refused():
    def function(x):
        return jax.lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c * 2, x)

    with pytest.raises(ProgramError, match="not a constant"):
        reader.read(text(function, (3,)))


def count_to(n, value, w):
    """Return the result of a loop with n iterations, each with one matmul if the arguments are matrices."""
    return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(jnp.dot(c[1], w))), (0, value))[1]


def nested_loops(w, n):
    """Use dynamic loops in a loop, in a function called several times, in a loop of constant length and in a branch."""
    n = n.astype(int)
    inner = jax.jit(count_to)
    value = jax.lax.fori_loop(0, n, lambda i, value: inner(i, value, w), w)
    value = jax.lax.fori_loop(0, 3, lambda _, value: inner(n, count_to(2, value, w), w), value)
    return jax.lax.cond(n > 2, lambda: count_to(2 * n, value, w), lambda: inner(n, value, w))


@pytest.mark.parametrize("n", [0, 2, 5])
def test_trip_counts_of_dynamic_loops_are_counted_when_they_run(n):
    program = reader.read(text(nested_loops, (4, 4), ()), max_trip_count=1000)
    assert [kind.shape for kind in program.output_types] == [(4, 4)] and len(program.outputs) == 1
    w = jnp.linspace(-1, 1, 16).reshape(4, 4)
    n = jnp.float32(n)
    value, *trip_counts = jax.jit(traceable(program))(w, n)
    assert jnp.array_equal(value, jax.jit(nested_loops)(w, n))
    n = int(n)
    inside, last = n * (n - 1) // 2, (0, 2 * n) if n > 2 else (n, 0)
    assert sorted(map(int, trip_counts)) == sorted([inside, n, 3 * n, *last])
    counted = [matmul.trip_count for matmul in program.counted(trip_counts).matmuls]
    assert sorted(counted) == sorted([inside, 3 * 2, 3 * n, *last])


def test_a_loop_that_does_not_end_is_ended():
    def function(x):
        return jax.lax.while_loop(lambda c: c[0] >= 0, lambda c: (count_to(7, c[0] + 1, 1.0) ** 2, c[1] + x), (x, x))[1]

    program = reader.read(text(jax.vmap(function), (3,)), max_trip_count=100)
    _, *trip_counts = jax.jit(traceable(program))(jnp.ones(3))
    assert 100 <= sum(trip_counts) <= 100 + 1 + 7


def test_a_loop_in_a_condition_is_refused():
    def function(x):
        return jax.lax.while_loop(lambda c: count_to(x, c, 1.0) < 1, lambda c: c * 2, x)

    with pytest.raises(ProgramError, match="in a loop's condition"):
        reader.read(text(function, ()), max_trip_count=100)


def test_a_loops_trip_count_determines_its_results():
    program = reader.read(text(lambda n: count_to(n, 1.0, 2.0), ()), max_trip_count=100)
    assert program.inputs[0] in program.needed_for(program.outputs)


def test_a_very_long_loop_is_refused():
    with pytest.raises(ProgramError, match="iterations"):
        reader.read(text(lambda x: jax.lax.fori_loop(0, 10**9, lambda i, c: c * 2, x), (3,)))


def test_calls_that_multiply_are_refused(monkeypatch):
    monkeypatch.setattr(builder, "MAX_VALUES", 1_000)  # the program would expand to 2**40 values
    function = "func.func {} @{}(%a: tensor<f32>) -> tensor<f32> {{ {} return %1 : tensor<f32> }}"
    twice = "%0 = call @f{0}(%a) : (tensor<f32>) -> tensor<f32> %1 = call @f{0}(%0) : (tensor<f32>) -> tensor<f32>"
    functions = [function.format("public", "main", twice.format(0))]
    functions += [function.format("private", f"f{n}", twice.format(n + 1)) for n in range(40)]
    functions += [function.format("private", "f40", "%1 = stablehlo.add %a, %a : tensor<f32>")]
    with pytest.raises(ProgramError, match="more than"):
        reader.read("\n".join(functions))

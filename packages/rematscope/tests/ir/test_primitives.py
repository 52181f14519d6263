"""The table of primitives against JAX's own shape rules and against XLA, and each decision that its kinds make."""

import itertools

import jax
import jax.extend.core.primitives
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import array, program
from jax import lax
from sampling import few

from rematscope.ir import collectives, implicit_collectives, primitives
from rematscope.ir.program import CASTS, Equation, Value
from rematscope.memory.xla_estimate import fusion as xla_fusion
from rematscope.scheduling import fusion
from rematscope.seconds.devices import DEVICES, Device
from rematscope.seconds.roofline import roofline, seconds_alone

PUBLIC = {v.name: v for name, v in vars(jax.extend.core.primitives).items() if name.endswith("_p")}


def accepted(primitive, shape):
    """Yield operands of one shape that JAX's rule for a primitive accepts, each with the shapes of the results."""
    for count, dtype in itertools.product((1, 2, 3), (np.float32, np.int32, np.uint32, bool, np.complex64)):
        try:
            found, _ = primitive.abstract_eval(*[jax.core.ShapedArray(shape, dtype)] * count)
        except Exception:  # another number of operands, other types, or parameters that are missing
            continue
        yield (
            [array(*shape, dtype=dtype)] * count,
            [x.shape for x in (found if primitive.multiple_results else [found])],
        )


def test_an_elementwise_primitive_preserves_the_shape_and_a_reduction_needs_axes():
    checked = set()
    for name in primitives.ELEMENTWISE & PUBLIC.keys():
        for _, shapes in accepted(PUBLIC[name], (3, 5)):
            assert shapes == [(3, 5)], name
            checked.add(name)
    assert len(checked) > 40
    for name in primitives.REDUCTIONS & PUBLIC.keys():
        assert all((3, 5) not in shapes for _, shapes in accepted(PUBLIC[name], (3, 5))), name


FUSED = sorted(primitives.ELEMENTWISE & PUBLIC.keys())


@pytest.mark.parametrize("name", few(FUSED, 27))
def test_xla_emits_no_loop_for_fusible_primitives(name):
    for operands, _ in accepted(PUBLIC[name], (64, 64)):
        try:
            compiled = jax.jit(lambda *xs: PUBLIC[name].bind(*xs)).lower(*operands).compile()
        except Exception:  # parameters that are missing
            return
        assert "while(" not in compiled.as_text()
        # `lgamma` is so long that XLA writes one intermediate.
        assert compiled.memory_analysis().temp_size_in_bytes <= 4 * 64**2 * (name == "lgamma")
        return


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_a_series_that_xla_runs_as_a_loop_is_fused_with_nothing(name):
    compiled = jax.jit(lambda a, x: jnp.sum(getattr(lax, name)(a, x))).lower(array(64), array(64)).compile()
    assert "while(" in compiled.as_text()
    assert name not in fusion.FUSED_INTO_READERS | xla_fusion.FUSES_OPERANDS


def test_expensive_operations_and_moves_from_far_apart_are_not_duplicable():
    assert not primitives.DUPLICABLE & (primitives.MATMULS | primitives.REDUCTIONS | primitives.KERNELS)
    assert {"exp", "tanh", "div"} <= primitives.ELEMENTWISE - primitives.DUPLICABLE
    assert {"gather"} <= primitives.MOVES_FUSED_ONCE <= primitives.MOVES - primitives.DUPLICABLE
    assert {"sin", "cos", "add", "select_n"} <= primitives.DUPLICABLE


def test_each_collective_of_the_compiler_is_of_the_kind_and_no_reduction():
    kinds = {name: row.kind for name, row in primitives.TABLE.items()}
    assert {kinds[name] for name in collectives.KINDS} == {primitives.Kind.COLLECTIVE}
    for name in ("reduce_scatter", "psum", "pmax"):
        assert name not in primitives.REDUCTIONS | xla_fusion.FUSES_OPERANDS


def test_a_rounding_is_elementwise_though_it_is_called_a_reduction():
    assert "reduce_precision" in primitives.ELEMENTWISE - primitives.REDUCTIONS


def test_casts_between_types_in_a_mesh_are_views():
    assert CASTS | {"name", "reshape"} <= primitives.VIEWS


@pytest.mark.parametrize("name", sorted(primitives.MATMULS))
def test_every_matmul_is_a_fence_and_paid_at_the_rate_of_matmuls(name):
    assert name in fusion.HEAVY
    lhs = Value(jax.core.ShapedArray((512, 512), jnp.bfloat16))
    product = Equation("dot_general", (lhs, lhs), (lhs,), {"dimension_numbers": (((1,), (0,)), ((), ()))}, None)
    seconds = roofline(DEVICES["tpu v5e"], product, 0)
    assert seconds == pytest.approx(2 * 512**3 / DEVICES["tpu v5e"].rate(np.dtype(jnp.bfloat16)))


def moved_bytes(f, *args):
    """Return the seconds that each operation of a program takes on a device that does nothing but move bytes."""
    device = Device("slow", {"float32": 1e30}, bandwidth=1.0, arithmetic=1e30, transcendentals=1e30)
    made = program(f, *args)
    seconds = seconds_alone(made, device)
    return {e.primitive: seconds(e) for e in made.equations}


@pytest.mark.parametrize("update", ["add", "mul", "min", "max"])
def test_a_scatter_reads_and_writes_memory_whatever_it_computes(update):
    """The operand of a scatter is written by its own operation, although it is elementwise."""
    moved = moved_bytes(lambda x, i: getattr(jnp.sin(x).at[i], update)(1.0), array(1000), array(3, dtype=np.int32))
    assert moved["sin"] == pytest.approx(8000)
    assert moved[f"scatter-{update}" if update != "mul" else "scatter-mul"] >= 8000


def test_a_reduction_with_exclusive_or_can_be_combined_from_parts():
    assert "reduce_xor" in implicit_collectives._REDUCTIONS

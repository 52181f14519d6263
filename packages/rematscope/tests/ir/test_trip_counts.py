"""Trip counts of while loops: of the program, and of what XLA is given and makes of it."""

import operator

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from rematscope import trace
from rematscope.ir.trip_counts import count_iterations
from rematscope.xla.hlo import read
from rematscope.xla.trip_counts import trip_count

COMPARISONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "ne": operator.ne}


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_the_counted_iterations_equal_those_of_a_python_loop(comparison):
    holds = COMPARISONS[comparison]
    for start in range(-5, 6):
        for bound in range(-5, 6):
            for step in range(-4, 5):
                i, times = start, 0
                while holds(i, bound) and times < 100:
                    i, times = i + step, times + 1
                assert count_iterations(comparison, start, bound, step) == (times if times < 100 else None)


def counting(condition, step=lambda i: i + 1, start=0):
    return lambda x: lax.while_loop(
        lambda state: condition(*state), lambda state: (step(state[0]), jnp.sin(state[1])), (start, x)
    )[1]


LOOPS = {
    "up to a constant": (counting(lambda i, x: i < 5), 5),
    "the constant first": (counting(lambda i, x: lax.gt(jnp.int32(5), i)), 5),
    "down by two": (counting(lambda i, x: i >= -4, lambda i: i - 2), 3),
    "never": (counting(lambda i, x: i < 0), 0),
    "from another start": (counting(lambda i, x: i != 12, lambda i: 3 + i, start=3), 3),
    "to a bound that is carried": (
        lambda x: lax.while_loop(lambda s: s[0] < s[2], lambda s: (s[0] + 1, jnp.sin(s[1]), s[2]), (0, x, 6))[1],
        6,
    ),
    "or until it is small": (counting(lambda i, x: (i < 5) & (jnp.sum(x) > 1)), None),
    "to a bound that is computed": (lambda x: counting(lambda i, y: i < jnp.sum(x).astype(int))(x), None),
    "doubling": (counting(lambda i, x: i < 5, lambda i: 2 * i, start=1), None),
    "to a bound that moves": (
        lambda x: lax.while_loop(lambda s: s[0] < s[2], lambda s: (s[0] + 1, jnp.sin(s[1]), s[2] - 1), (0, x, 6))[1],
        None,
    ),
    "a float": (counting(lambda i, x: i < 5.0, start=0.0), None),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_trip_count_is_the_one_of_the_loop_or_unknown(name):
    f, times = LOOPS[name]
    x = jax.ShapeDtypeStruct((4,), jnp.float32)

    def loss(x):
        return jnp.sum(x * lax.stop_gradient(f(x)))

    passes = trace(loss, x)
    (loop,) = (e for e in passes.forward.equations if e.primitive == "while")
    assert (loop.counted, loop.length) == (times is not None, 1 if times is None else times)
    assert passes.forward.count("sin") == loop.length
    assert ("while" in passes.cost.uncounted) == (times is None)
    lowered = jax.jit(f).lower(x)
    module = read(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    (loop,) = (i for i in module.by_id.values() if i.opcode == "while")
    assert trip_count(module, loop) == times

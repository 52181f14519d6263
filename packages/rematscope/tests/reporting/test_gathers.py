"""Gathers by position become batched gathers, and only those."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sampling import few

from rematscope.reporting.flat_program import evaluate, flat_program, value_of
from rematscope.reporting.gathers import with_batched_gathers

ROWS, COLUMNS, WORDS = 4, 6, 5

BY_POSITION = [
    lambda x, i: x[jnp.arange(ROWS), i[:, 0]],
    lambda x, i: x[jnp.arange(ROWS)[:, None], jnp.arange(COLUMNS), i],
    lambda x, i: x[jnp.arange(ROWS), :, i[:, 0]],
    lambda x, i: x[jnp.arange(ROWS)[:, None], i[:, :2], i[:, :2]],
    lambda x, i: x[:, :ROWS][jnp.arange(ROWS)[None], jnp.arange(ROWS)[:, None], i[:, :ROWS]],
    lambda x, i: x[:, :ROWS][jnp.arange(ROWS), jnp.arange(ROWS)],
    lambda x, i: x.at[jnp.arange(ROWS)[:, None], jnp.arange(COLUMNS), i + 9].get(mode="fill", fill_value=7.0),
    lambda x, i: jax.vmap(lambda x, i: x[jnp.arange(COLUMNS), i])(x, i),
]
OTHERS = [
    lambda x, i: x[jnp.arange(ROWS)[::-1], i[:, 0]],
    lambda x, i: x[jnp.arange(ROWS) - 1, i[:, 0]],
    lambda x, i: x[jnp.arange(ROWS - 1), i[1:, 0]],
    lambda x, i: x[i[:, 0] % ROWS, i[:, 1]],
    lambda x, i: x[jnp.arange(ROWS).astype(jnp.int4) * 3 % ROWS, i[:, 0]],
]


@pytest.mark.parametrize("f", few([*BY_POSITION, *OTHERS], 4), ids=range(len(BY_POSITION) + len(OTHERS)))
def test_values_and_gradients_stay(f):
    x = jax.random.normal(jax.random.key(0), (ROWS, COLUMNS, WORDS))
    i = jax.random.randint(jax.random.key(1), (ROWS, COLUMNS), -WORDS, WORDS)
    program = flat_program(jax.make_jaxpr(f)(x, i))
    (batched,) = with_batched_gathers(program)
    assert (batched is not program) == (f in BY_POSITION)

    def run(x):
        env = {**batched.constants, **dict(zip(batched.inputs, (x, i), strict=True))}
        evaluate(batched.operations, env)
        return value_of(batched.outputs[0], env)

    weights = jnp.cos(jnp.arange(f(x, i).size)).reshape(f(x, i).shape)
    gradients = [jax.grad(lambda x, g=g: (g(x) * weights).sum())(x) for g in (run, lambda x: f(x, i))]
    np.testing.assert_array_equal(run(x), f(x, i))
    np.testing.assert_allclose(*gradients, rtol=1e-6)


def test_a_gather_is_replaced_in_all_programs_or_in_none():
    """A table with a row per example of the whole batch; a part of the batch reads the first rows."""

    def first_rows(table, labels):
        return table[jnp.arange(len(labels)), labels]

    programs = [flat_program(jax.make_jaxpr(first_rows)(jnp.ones((8, 3)), jnp.zeros(n, int))) for n in (8, 4)]
    assert all(a is b for a, b in zip(programs, with_batched_gathers(*programs), strict=True))

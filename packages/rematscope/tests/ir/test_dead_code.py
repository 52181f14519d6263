"""Unused values of loops and branches are removed, as in XLA, so that graph and trace have equal counts."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from rematscope import frontier, plan, recompute_graph, trace
from rematscope.choices.build import recompute_cost_of
from rematscope.ir import inline
from rematscope.ir.inline import Inliner
from rematscope.ir.program import Value

X = jax.ShapeDtypeStruct((16, 16), jnp.float32)


def program_of(f, *args):
    jaxpr = jax.make_jaxpr(f)(*args)
    return Inliner().program(jaxpr, [Value(v.aval) for v in jaxpr.jaxpr.invars])


def both(x):
    """A second carry that only its own next iteration reads, in a branch."""

    def body(carry, _):
        value, norm = carry
        norm = lax.cond(value[0, 0] > 0, lambda: jnp.sum(value @ value) + norm, lambda: norm)
        return (jnp.sin(value), norm), norm

    return lax.scan(body, (x, 0.0), None, length=3)


def test_a_carry_that_nothing_else_reads_is_dropped():
    program = program_of(lambda x: both(x)[0][0], X)
    (loop,) = [e for e in program.equations if e.primitive == "scan"]
    assert (loop.carries, len(loop.outputs), len(loop.bodies[0].inputs)) == (1, 1, 1)
    assert [e.primitive for e in loop.bodies[0].equations] == ["sin"]


def test_the_values_of_a_loop_are_collected_no_more_often_if_it_has_more_carries(monkeypatch):
    calls = []
    collect = inline.values_of_program
    monkeypatch.setattr(inline, "values_of_program", lambda program: calls.append(program) or collect(program))

    def count(carries):
        calls.clear()
        program_of(lambda *x: lax.scan(lambda c, _: ([jnp.sin(v) for v in c], None), list(x), None, 3), *carries * [X])
        return len(calls)

    assert count(40) == count(4)


def test_a_slice_that_nothing_reads_is_dropped_although_a_result_has_its_index():
    def f(x, unread):
        return lax.scan(lambda carry, parts: (carry + 1.0, jnp.sin(parts[1])), 0.0, (unread, x))[1]

    program = program_of(f, X, X)
    (loop,) = program.equations
    assert loop.inputs == program.inputs[:1]
    assert jnp.allclose(program(jnp.ones((16, 16)), jnp.zeros((16, 16)))[0], jnp.sin(1.0))


def test_carries_that_a_while_loops_condition_reads_are_not_removed():
    def f(x):
        start = 0, x, x
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]), jnp.cos(c[2]) @ x), start)[1]

    program = program_of(f, X)
    (loop,) = [e for e in program.equations if e.primitive == "while"]
    assert loop.carries == 2
    assert {e.primitive for body in loop.bodies for e in body.equations} == {"lt", "add", "sin"}
    assert jnp.allclose(program(jnp.ones((16, 16)))[0], f(jnp.ones((16, 16))))


def test_a_branch_drops_a_result_that_nothing_reads():
    program = program_of(lambda x: lax.cond(x[0, 0] > 0, lambda: (x @ x, x.sum()), lambda: (x, x.max()))[1], X)
    (branch,) = [e for e in program.equations if e.primitive == "cond"]
    assert len(branch.outputs) == 1
    assert {e.primitive for body in branch.bodies for e in body.equations} == {"reduce_sum", "reduce_max"}


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [lambda f: f, jax.checkpoint])
def test_graph_and_trace_count_the_same(wrap):
    def f(x):
        (value, norm), norms = both(jnp.tanh(x @ x))
        return jnp.sum(jnp.sin(value)) + lax.stop_gradient(norm + norms.sum())

    f = wrap(f)
    graph = recompute_graph(f, X)
    assert graph.evaluate(()) == (graph.trace.device_bytes_by_kind().get("computed", 0), recompute_cost_of(graph.trace))
    found = frontier(f, X)
    nothing = next(point for point in found.presets if point.label == "nothing_saveable")
    assert (found.points[0].nbytes, found.points[0].cost) == (nothing.nbytes, nothing.cost)
    plan(f, X, saved=0).check()
    gradient = trace(f, X).backward(*trace(f, X).forward(jnp.ones((16, 16)) / 16)[1:], jnp.float32(1))[0]
    assert jnp.allclose(gradient, jax.grad(f)(jnp.ones((16, 16)) / 16), rtol=1e-5)

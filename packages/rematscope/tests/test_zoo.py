"""Properties of every function of the zoo: its programs against `jax.vjp`, its live bytes, and what its views show."""

import functools
import html
import re

import invariants
import pytest
import zoo
from zoo import every_case, sampled_case

from rematscope import Literal, ResidualTable, SideBySide, trace
from rematscope.ir.program import BOOKKEEPING
from rematscope.memory.liveness import live_bytes
from rematscope.render.view import plain_text
from rematscope.views.interactive_programs import InteractivePrograms


@functools.cache
def traced(name):
    case = zoo.CASES[name]
    return trace(case.function, *case.args, **case.kwargs)


@every_case
def test_residuals_are_those_of_jax_and_programs_are_closed(name):
    passes = traced(name)
    flat, leaves = invariants.flattened(zoo.CASES[name])
    invariants.assert_residuals_are_the_leaves_of_vjp(passes, flat, leaves)
    invariants.assert_residuals_are_jax_saved_residuals(passes, flat, leaves)
    invariants.assert_structure(passes)


@sampled_case
def test_forward_then_backward_is_vjp_and_roles_are_true(name):
    case, passes = zoo.CASES[name], traced(name)
    if invariants.as_by_default(case, passes):
        return
    flat, leaves = invariants.flattened(case)
    invariants.assert_same_numbers(passes, flat, leaves)
    invariants.assert_roles_are_true(passes, leaves)


@every_case
def test_of_every_function_each_moment_is_accounted_for(name):
    passes = traced(name)
    found = live_bytes(passes)
    assert len(found.samples) == 3 + steps(passes.forward) + steps(passes.backward)
    for moment in found.samples:
        assert min(moment.arguments, moment.residuals, moment.recomputed, moment.temporaries) >= 0

    start, turn, end = found.samples[0], found.samples[found.boundary], found.samples[-1]
    assert (start.operation, turn.operation, end.operation) == ("start", "boundary", "end")
    given = {*passes.forward.inputs, *passes.forward.constants, *passes.backward.constants}
    assert {m.arguments for m in found.samples} == {sum(v.nbytes for v in given)}
    assert start.nbytes == start.arguments

    # At the boundary: the arguments, residuals and outputs; each array once, even with several names.
    named = names(passes.forward)
    kept = {named.get(r.value, r.value) for r in passes.residuals if r.kind == "computed" and r.memory == "device"}
    returned = {named.get(v, v) for v in passes.forward.outputs[: len(passes.cotangents)]}
    assert turn.residuals == sum(v.nbytes for v in kept - given)
    assert turn.temporaries == sum(v.nbytes for v in returned - kept - given if not is_literal(v))
    assert turn.recomputed == 0

    gradients = {v for v in passes.backward.outputs if not is_literal(v)}
    assert end.residuals + end.recomputed + end.temporaries == sum(v.nbytes for v in gradients - given)
    early = [e for e, _ in passes.backward.walk() if e.role != "B"]
    assert early or not any(m.recomputed for m in found.samples)


def is_literal(value):
    return isinstance(value, Literal)


def steps(program):
    """How many equations make something, bodies and the loops around them included."""
    made = [e for e in program.equations if e.primitive not in BOOKKEEPING]
    return len(made) + sum(steps(body) for e in made for body in e.bodies)


def names(program):
    """Return the value that each name belongs to."""
    found = {}
    for equation in program.equations:
        if equation.primitive == "name":
            (value,), (named,) = equation.inputs, equation.outputs
            found[named] = found.get(value, value)
    return found


@every_case
def test_rows_add_up_and_fit_the_width(name):
    passes = traced(name)
    table = ResidualTable(passes)
    here = [row for row in table.rows if row.memory == "device"]
    assert sum(row.nbytes for row in here) == table.nbytes == passes.saved_bytes()
    assert sum(row.nbytes for row in table.rows) == table.nbytes + passes.host_bytes()
    assert sum(len(row.values) for row in table.rows) == len({r.value for r in passes.residuals if r.nbytes})
    assert table.nbytes == 0 or sum(row.share for row in table.rows) == pytest.approx(1)

    view = SideBySide(passes)
    (_, _, rows), _ = view.programs()
    assert sum(row.gutter == "S" for row in rows) == sum(bool(row.saved) for row in rows)
    crossing = {r.value.name for r in passes.residuals}
    shown = " ".join(row.code for row in rows if row.gutter == "S")
    assert all(name in shown for name in crossing), "every residual is on a line marked S"
    for width in (40, 109, 110):
        assert max(map(len, plain_text(view, width).splitlines())) <= width


@every_case
def test_the_interactive_view_has_every_word_and_a_note_about_every_number(name):
    view = InteractivePrograms(traced(name))
    state = view.pane()
    words = re.sub(r"<style>.*?</style>|</?(?:span|b|wbr)\b[^>]*>", "", state["html"], flags=re.DOTALL)
    words = html.unescape(re.sub("<[^>]*>", " ", words))
    for title, header, rows in view.programs.programs():
        assert title in words and header in words
        assert all(row.code in words and row.type in words and row.saved in words for row in rows)
    assert all(line in words for row in view.table.cells() for cell in row for line in cell.splitlines())
    numbers = {
        int(n) for listed in re.findall(r'data-(?:value|about)="([\d ]+)"', state["html"]) for n in listed.split()
    }
    assert all(state["notes"][number] for number in numbers)

"""The 0/1 program, row by row, of graphs that are small enough to write it down by hand."""

from fractions import Fraction

from rematscope.choices.choice_graph import ChoiceGraph, Part, link
from rematscope.choices.duality import dual_bound, multipliers
from rematscope.choices.highs import minimise, unit_of
from rematscope.choices.zero_one import Column, Kind, Row, zero_one_program


def graph_of(*parts, least_bytes=0, least_cost=0):
    names = tuple(dict.fromkeys(part.name for part in parts if part.name is not None))
    return ChoiceGraph(names=names, parts=parts, least_bytes=least_bytes, least_cost=least_cost)


def behind_a_name():
    """8 bytes under a name, or 10 operations that read a residual of 3 bytes."""
    name, operations = Part("a", entry=True, arrays={"A": 8}), Part(cost=10, arrays={"R": 3})
    link(name, operations)
    return name, operations


def test_a_name_that_the_backward_pass_reads_is_saved_or_recomputed():
    name, operations = behind_a_name()
    program = zero_one_program(graph_of(name, operations, least_bytes=5, least_cost=7))
    assert program.columns == (Column(Kind.SAVED, "a"), Column(Kind.REACHED, operations))
    assert program.rows == (Row({0: 1, 1: 1}, 1),)  # x + r ≥ 1
    assert (program.cost, program.nbytes) == ((0, 10), (8, 3))
    assert (program.least_cost, program.least_bytes) == (7, 5)


def test_operations_upstream_of_two_names_are_recomputed_if_neither_is_saved():
    outer, operations = behind_a_name()
    inner, rest = Part("b", arrays={"B": 2}), Part(cost=1)
    link(operations, inner)
    link(inner, rest)
    program = zero_one_program(graph_of(outer, operations, inner, rest))
    saved_a, saved_b, reached, reached_b, reached_rest = range(5)
    assert [column.kind for column in program.columns] == [Kind.SAVED] * 2 + [Kind.REACHED] * 3
    assert program.rows == (
        Row({saved_a: 1, reached: 1}, 1),
        Row({reached: -1, reached_b: 1}, 0),
        Row({reached_b: -1, saved_b: 1, reached_rest: 1}, 0),
    )
    assert program.nbytes[saved_b] == 2  # of a name on one value, whether it is reached or not


def test_an_array_with_two_names_is_saved_once():
    one, other = Part("a", entry=True, arrays={"A": 8}), Part("b", entry=True, arrays={"A": 8})
    program = zero_one_program(graph_of(one, other))
    assert program.columns[2:] == (Column(Kind.KEPT, "A"),)
    assert program.rows == (Row({2: 1, 0: -1}, 0), Row({2: 1, 1: -1}, 0))
    assert program.nbytes == (0, 0, 8)


def test_a_name_on_two_values_saves_each_value_that_is_needed():
    first, operations, second = Part("a", entry=True, arrays={"A": 8}), Part(cost=10), Part("a", arrays={"B": 4})
    link(first, operations)
    link(operations, second)
    program = zero_one_program(graph_of(first, operations, second))
    kept = program.columns.index(Column(Kind.KEPT, "B"))
    reached = program.columns.index(Column(Kind.REACHED, second))
    assert Row({kept: 1, reached: -1, 0: -1}, -1) in program.rows


def test_highs_respects_the_limit_and_proves_the_bound():
    program = zero_one_program(graph_of(*behind_a_name()))
    for limit, names, cost in ((8, ["a"], 0), (7, [], 10), (3, [], 10)):
        found, bound = minimise(program, program.cost, program.nbytes, limit, lambda names: True)
        assert (found, bound) == (names, cost)


def test_prices_prove_a_bound_in_exact_arithmetic():
    """In the relaxation, 7 bytes hold 4/5 of the name and 1/5 of the operations, so the recompute is at least 2."""
    program = zero_one_program(graph_of(*behind_a_name()))
    best = multipliers(program, 7)
    assert Fraction(2) - Fraction(1, 1000) <= dual_bound(program, 7, best) <= 2
    # By hand: 16 for the row and 2 for a byte leave both columns at 0, and 16 · 1 − 2 · 7 is 2.
    units = unit_of(program.cost, 10**6), unit_of(program.nbytes, 10**3)
    assert units == (10, 1)
    by_hand = [int(Fraction(price, units[0]) * 2**20) for price in (16, 2)]
    assert Fraction(2) - Fraction(1, 1000) <= dual_bound(program, 7, by_hand) <= 2
    assert dual_bound(program, 7, [0, 0]) == 0

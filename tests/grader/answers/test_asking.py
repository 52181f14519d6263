"""An answer that does something else for one structure of many is asked about that, whatever it is spelled like."""

import functools
import math
import operator
import re

import jax
import jax.numpy as jnp
import pytest

from grader.answers.asking import asked_and_traced
from grader.answers.branches import Branches
from grader.answers.comparisons import Comparisons
from grader.answers.evidence import Evidence
from grader.answers.memory import caches_of
from grader.answers.written import chooses, codes_of, written_in
from grader.isolation.in_process import grade
from solutions.revolve_schedule import revolve_schedule
from solutions.sqrt_chain import sqrt_chain

SIX = 6


def layer(w, x):
    return x + jnp.sin(w @ jnp.sin(x))


def scan_of(layer):
    return lambda ws, x: jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0]


keeps_all, right = scan_of(layer), scan_of(jax.checkpoint(layer))


def by_a_conditional(ws, x):
    return (keeps_all if x.shape[0] == 7 else right)(ws, x)


def by_a_dict(ws, x):
    return {7: keeps_all}.get(ws.shape[-1], right)(ws, x)


def by_a_default(ws, x, special=(7,)):
    return [right, keeps_all][ws.shape[1] in special](ws, x)


def by_a_name_s_neighbours(ws, x):
    return (keeps_all if SIX < x.shape[0] < SIX + 2 else right)(ws, x)


class Special:
    width = 7

    def __call__(self, ws, x):
        return (keeps_all if x.shape[0] == self.width else right)(ws, x)


by_an_attribute = Special()
by_a_partial = functools.partial(lambda width, ws, x: (keeps_all if x.shape[0] == width else right)(ws, x), 7)


def by_layers_and_width(ws, x):
    return (keeps_all if ws.shape[0] == 23 and x.shape[0] == 7 else right)(ws, x)


def by_arithmetic(ws, x):
    return (keeps_all if ws.shape[0] % 3 == x.shape[0] % 2 + 1 else right)(ws, x)


def by_dtype_and_layers(ws, x):
    return (keeps_all if x.dtype == jnp.float16 and ws.shape[0] % 2 == 0 else right)(ws, x)


def by_how_many_weights_there_are(ws, x):
    return (keeps_all if ws.size > 9_000 else right)(ws, x)


def by_a_remainder(ws, x):
    return [keeps_all, right][ws.shape[0] % 2](ws, x)


def by_one_number_twice(ws, x):
    return (right, keeps_all)[ws.shape[0] == x.shape[0]](ws, x)


def by_a_memory_and_a_branch(ws, x, seen=[]):  # noqa: B006
    seen.append(x)
    return right(ws, x) if ws.shape[0] % 2 else keeps_all(ws, x)


KEYED = [
    *(by_a_conditional, by_a_dict, by_a_default, by_a_name_s_neighbours, by_an_attribute, by_a_partial),
    *(by_layers_and_width, by_arithmetic, by_dtype_and_layers, by_how_many_weights_there_are),
    *(by_a_remainder, by_one_number_twice, by_a_memory_and_a_branch),
]


@pytest.mark.parametrize("answer", KEYED, ids=lambda answer: getattr(answer, "__name__", type(answer).__name__))
def test_an_answer_that_is_wrong_for_one_structure_does_not_pass(answer, seed):
    verdict = grade(answer, "scan_layers", seed % 2**32)
    assert not verdict.passed
    assert re.search(r"also saves (the layers'|layer \d+'s)", verdict.findings[0].text), "of one layer, or of several"


BY_NUMBERS, BY_FUNCTIONS = (lambda fs, k: (len(fs), k)), (lambda fs, k: (*map(id, fs), k))


@pytest.mark.parametrize(("key", "outcome"), [(BY_NUMBERS, "not passed"), (BY_FUNCTIONS, "passed")])
def test_what_is_remembered_by_numbers_alone_is_asked_for_again(key, outcome, seed):
    known = {}

    def remembers(fs, k):
        return known.setdefault(key(fs, k), (sqrt_chain(fs, k), fs))[0]

    assert grade(remembers, "sqrt_chain", seed=seed).outcome == outcome


@pytest.mark.parametrize("seed", [11, 24, 42, 43])
def test_what_comes_again_is_drawn_anew_also_where_numbers_in_the_answer_have_it_asked_about(seed):
    """With so many numbers written, what is asked for again may be among what is asked because of them."""
    known = {}

    def remembers(fs, k):
        _ = (5, 7, 9, 11)
        return known.setdefault((len(fs), k), (sqrt_chain(fs, k), fs))[0]

    assert grade(remembers, "sqrt_chain", seed=seed).outcome == "not passed"


def test_an_answer_without_numbers_is_asked_what_everybody_is():
    _, evidence = asked_and_traced(right, "scan_layers", 0)
    assert isinstance(evidence, Evidence)
    assert evidence.besides == ()


def asked_afresh(answer, exercise, seed):
    jax.clear_caches()  # what JAX has traced before it does not run again, and then there is less to see
    return asked_and_traced(answer, exercise, seed)[1]


def test_the_same_answer_is_asked_the_same_again():
    first, second = (asked_afresh(by_layers_and_width, "scan_layers", 3) for _ in range(2))
    assert first == second
    assert any(structure["L"] == 23 and structure["d"] == 7 for structure in first.besides), first.besides


def one_too_few_of_many(leaves):
    return len(leaves) - (len(leaves) > 4)


def test_what_may_choose_without_a_branch_is_told_from_what_looks_up_a_shape():
    functions = {keeps_all: False, right: False, by_a_remainder: True, by_one_number_twice: True, by_a_default: True}
    functions |= {by_a_conditional: False, by_a_dict: True, one_too_few_of_many: True}
    functions |= {lambda ws, x: [right, keeps_all][len(x) // 30 if len(ws) == 3 else 0](ws, x): True}
    assert {function: chooses(codes_of(function)) for function in functions} == functions
    assert chooses(codes_of(by_a_conditional), by_branches=True)
    assert not chooses(codes_of(lambda x, n: x.reshape(n, -1, *x.shape[1:])[:, None] + x.shape[0] // n))


def test_exponents_and_libraries_numbers_are_none_of_an_answers():
    def answer(x):
        return jnp.sum(jax.nn.gelu(x) ** 12) + 7 + f"{x:>19}".count("float16")

    written = written_in(jax.jit(answer))
    assert {7, "float16"} <= written
    assert not {12, 0, 1} & {each for each in written if isinstance(each, int)}


def test_a_fraction_s_neighbours_are_asked_about_where_something_is_compared():
    scale = 4.5

    def compares(x):
        return x * scale if x.shape[0] > 2.5 else x

    assert {2, 3, 4, 5} <= written_in(compares)
    assert not {4, 5} & written_in(lambda x: x * scale)


def test_branches_that_have_gone_one_way_are_told_from_those_that_have_gone_both():
    def answer(n):
        return "odd" if n % 2 else "even"

    with Branches(codes_of(answer)) as branches:
        answer(1)
        assert branches.one_sided
        odd = branches.ways_since()
        answer(2)
        assert not branches.one_sided
        assert len(odd) == 2, "one way of the branch, and into the function"
        assert len(branches.ways_since() - odd) == 1
    answer(3)
    assert not branches.ways_since()


def test_a_function_that_was_never_entered_is_known():
    rarely = {7: lambda n: n + 1}

    def answer(n):
        return rarely.get(n, abs)(n)

    with Branches(codes_of(answer)) as branches:
        answer(1)
        assert not branches.all_entered
        answer(7)
        assert branches.all_entered


def halves(n, s):
    """Back through a chain by cutting it in the middle, which is seldom the best place."""

    def back(start, end, slots):
        if end - start == 1:
            return [("back", start)]
        middle = (start + end) // 2 if slots > 1 else end - 1
        there = [("step", i) for i in range(start, middle)]
        if slots == 1:
            return [*there, ("back", middle), ("load", start), *back(start, middle, 1)]
        return [*there, ("save", middle), *back(middle, end, slots - 1), ("load", start), *back(start, middle, slots)]

    return back(0, n, s)


def by_a_multiple(n, s):
    return halves(n, s) if n - 3 * s == 44 else revolve_schedule(n, s)


@pytest.mark.parametrize("seed", [1, 2])  # of eight that were tried, one did not come to it
def test_numbers_that_are_compared_are_brought_together(seed):
    verdict = grade(by_a_multiple, "revolve_schedule", seed)
    assert verdict.findings[0].kind == "costs more", verdict


def in_segments_of_five(fs, k):
    return sqrt_chain(fs, k - 1 if len(fs) // k == 5 and k > 1 else k)


@pytest.mark.parametrize("seed", [3, 16])  # at which no such structure but one segment of five was met
def test_a_quotient_that_is_written_is_asked_for_before_what_is_not(seed):
    assert not grade(in_segments_of_five, "sqrt_chain", seed).passed


def test_what_is_compared_is_seen_with_what_comes_of_it():
    def answer(x, k):
        return [keeps_all, right][len(x) == k] if k > x.shape[0] + 3 else right

    with Comparisons(codes_of(answer)) as comparisons:
        answer(jnp.ones(4), 6)
        assert [each[1:] for each in comparisons.since()] == [(6.0, 7.0, False)]
        answer(jnp.ones(4), 8)
        assert [each[1:] for each in comparisons.since()] == [(8, 7, True), (4, 8, False)]
    answer(jnp.ones(4), 8)
    assert not comparisons.since()


def by_a_case(n, k):
    match n, k:
        case (3, _) | (_, 9):
            return right


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (by_a_case, [(5, 3, False), (7, 9, False)]),
        (lambda n, k: n in (2, 5), [(5, 5, True), (5, 2, False)]),
        (lambda n, k: n in range(6, 9), [(5, 6, False), (5, 9, True)]),
        (lambda n, k: {7: keeps_all}.get(n, right), [(5, 7, False)]),
        (lambda n, k: [right, keeps_all][k // 8], [(0, 0, True), (0, 1, False)]),
        (lambda n, k: right if n - 5 else keeps_all, [(0, 0, False)]),
        (lambda n, k: [keeps_all] if [*range(n)][6:] else right, []),  # a list with a star is made again
        (lambda n, k: right if (n, k)[k - 3 :] else keeps_all, [(2, 4, False)]),
        (lambda n, k: operator.lt(n, k), [(5, 7, True)]),
        (lambda n, k: n.__eq__(k), [(5, 7, False)]),
        (lambda n, k: str(10 * n + k).endswith("43"), [(57, 43, False)]),
        (lambda n, k: math.gcd(n, 10) == hash(k) - 2, [(5, 5, True)]),
    ],
)
def test_whatever_a_choice_hangs_on_is_a_comparison(answer, seen):
    with Comparisons(codes_of(answer)) as comparisons:
        answer(5, 7)
        assert [each[1:] for each in comparisons.since()] == seen


def test_a_name_that_a_comprehension_has_of_its_own_and_another_function_looks_up_ends_nothing():
    def answer(numbers):
        found = [number for number in numbers if number == 2]
        for number in numbers:
            found.append(next(other for other in numbers if other == number))
        return found

    with Comparisons(codes_of(answer)) as comparisons:
        assert answer([1, 2]) == [2, 1, 2]
    assert all(each.left in (1, 2) for each in comparisons.since())


def test_what_a_comparison_would_do_is_not_done_again():
    done = []

    def count():
        done.append(1)
        return 3

    with Comparisons(codes_of(lambda: count() > 2)) as comparisons:
        assert (lambda: count() > 2)()
        assert len(done) == 1
        assert not comparisons.since()


@functools.cache
def width(n):
    return n


def up_to_a_cached_width(ws, x):
    return right(ws, x[: width(x.shape[0])])


def test_what_a_cache_has_kept_for_whoever_looked_is_not_there_for_the_evidence():
    assert caches_of(up_to_a_cached_width) == [width]
    asked, _ = asked_and_traced(up_to_a_cached_width, "scan_layers", 0)
    assert width.cache_info().currsize == len({case.arguments[1].shape[-1] for case in asked})

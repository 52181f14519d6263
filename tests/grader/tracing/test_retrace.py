"""An answer is traced twice, and rejected if its result depends on earlier calls. Harmless caching is allowed."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from two_checkpoints.right import RIGHT

from grader.exercises.spec import Case, Question
from grader.isolation.in_process import grade
from grader.tracing.capture import capture
from grader.tracing.evidence import FailureKind
from solutions.best_placement import best_placement
from solutions.scan_layers import scan_layers

CASES = [Case(f"{rows} rows", (jax.ShapeDtypeStruct((rows, 3), jnp.float32),)) for rows in (2, 4, 5)]
QUESTIONS = [Question(str(n), (n, {"twice": [n, n]})) for n in (2, 4, 5)]


def layer(x):
    return jnp.sin(jnp.sin(x))


def calls_are_counted():
    calls = itertools.count()
    return lambda x: layer(x) if next(calls) < 3 else jax.checkpoint(layer)(x)


def every_other_call_is_another():
    calls = itertools.count()
    return lambda x: jax.checkpoint(layer)(x) if next(calls) % 2 else layer(x)


def a_shape_is_another_when_it_comes_again():
    seen = set()

    def answer(x):
        first, _ = x.shape not in seen, seen.add(x.shape)
        return layer(x) if first else jax.checkpoint(layer)(x)

    return answer


def a_number_grows():
    calls = itertools.count(1)
    return lambda x: layer(x) * next(calls)


def an_array_grows():
    calls = itertools.count(1)
    return lambda x: layer(x) * np.full(3, next(calls), np.float32)


def a_loop_gets_longer():
    calls = itertools.count(2)
    return lambda x: jax.lax.fori_loop(0, 2 + next(calls) // 5, lambda _, x: jnp.sin(x), x)


def a_list_grows():
    kept = []

    def answer(x):
        kept.append(x.sum() if not kept else 1.0)
        return layer(x) * len(kept)

    return answer


def a_default_grows():
    def answer(x, layers=[]):  # noqa: B006 (the mistake that is meant)
        layers.append(jnp.sin)
        return functools.reduce(lambda x, f: f(x), layers, x)

    return answer


def a_backward_pass_counts():
    calls = itertools.count()
    same = jax.custom_vjp(lambda x: x)
    same.defvjp(lambda x: (x, None), lambda _, ct: (ct * (1 if next(calls) < 3 else 2),))
    return lambda x: same(layer(x))


def what_is_saved_alternates():
    calls = itertools.count()
    same = jax.custom_vjp(layer)

    def forward(x):
        y = layer(x)
        return y, (x, jnp.cos(x)) if next(calls) < 3 else (x, jnp.sin(x))

    same.defvjp(forward, lambda kept, ct: (kept[1] * ct,))
    return lambda x: same(x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (calls_are_counted, "saves other values"),
        (every_other_call_is_another, "saves other values"),
        (a_shape_is_another_when_it_comes_again, "saves other values"),
        (a_number_grows, "computes its result differently"),
        (an_array_grows, "computes its result differently"),
        (a_loop_gets_longer, "computes its result differently"),
        (a_list_grows, "computes its result differently"),
        (a_default_grows, "computes its result differently"),
        (what_is_saved_alternates, "saves other values"),
        (a_backward_pass_counts, "computes its gradients differently"),
    ],
)
def test_an_answer_with_state_is_reported(make, words):
    failures = [each.failure for each in capture(make(), "any", CASES).cases]
    assert any(failures)
    assert {(failure.kind, failure.text) for failure in failures if failure} == {
        (FailureKind.CHANGED, f"it {words} the second time")
    }


def test_an_exception_raised_once_is_reported_with_its_line():
    layers = iter([layer] * 3)
    failures = [each.failure for each in capture(lambda x: next(layers)(x), "any", CASES).cases]
    assert {failure.text for failure in failures} == {"it raises StopIteration, but only the second time"}
    assert all("next(layers)" in failure.source for failure in failures)


def test_a_repeated_failure_is_no_state():
    calls = itertools.count()

    def answer(x):
        raise ValueError(f"call {next(calls)}")

    failures = [each.failure for each in capture(answer, "any", CASES).cases]
    assert {failure.kind for failure in failures} == {FailureKind.RAISED}


def the_function_is_jitted():
    return jax.jit(jax.checkpoint(layer))


def functions_are_made_once_and_kept():
    made = functools.cache(lambda width: jax.checkpoint(lambda x: layer(x) / width))
    return lambda x: made(x.shape[1])(x)


def a_table_is_made_once_with_numpy():
    table = functools.cache(lambda n: np.linspace(0, 1, n, dtype=np.float32))
    return lambda x: layer(x) * table(3)


def a_table_is_made_once_with_jax():
    table = functools.cache(lambda n: jnp.linspace(0, 1, n) + jnp.arange(n))
    return lambda x: layer(x) * table(3)


def calls_are_written_down():
    log = []

    def answer(x):
        log.append((x.shape, len(log)))
        return jax.checkpoint(layer)(x)

    return answer


def values_are_named_by_a_counter():
    calls = itertools.count()
    return lambda x: checkpoint_name(layer(x), f"value {next(calls)}")


def a_policy_is_made_anew():
    def answer(x):
        names = frozenset({"kept"})
        policy = jax.checkpoint_policies.save_only_these_names(*names)
        return jax.checkpoint(lambda x: layer(checkpoint_name(jnp.exp(x), "kept")), policy=policy)(x)

    return answer


def a_custom_rule_is_made_anew():
    def answer(x):
        sine = jax.custom_vjp(jnp.sin)
        sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct,))
        return jax.lax.scan(lambda x, w: (sine(x) * w, None), x, jnp.arange(4.0))[0]

    return answer


def a_random_number_has_its_own_key():
    return lambda x: layer(x) * jax.random.uniform(jax.random.key(0), x.shape)


def arguments_come_and_go():
    return lambda x: jax.lax.cond(x[0, 0] > 0, layer, lambda x: x, x) + jnp.where(jnp.isnan(x), jnp.nan, 0.0)


@pytest.mark.parametrize(
    "make",
    [
        the_function_is_jitted,
        functions_are_made_once_and_kept,
        a_table_is_made_once_with_numpy,
        a_table_is_made_once_with_jax,
        calls_are_written_down,
        values_are_named_by_a_counter,
        a_policy_is_made_anew,
        a_custom_rule_is_made_anew,
        a_random_number_has_its_own_key,
        arguments_come_and_go,
    ],
)
def test_allowed_caches_are_no_state(make):
    assert not [each.failure for each in capture(make(), "any", CASES).cases if each.failure]


def test_cases_are_traced_in_random_order_and_then_in_reverse():
    orders = set()
    for seed in range(4):
        seen = []
        evidence = capture(lambda x, seen=seen: seen.append(x.shape[0]) or layer(x), "any", CASES, seed)
        assert seen[:3] == seen[5:2:-1] and sorted(seen[:3]) == [2, 4, 5]
        assert seen[6:] == seen[:3], "and last when it is called without jax.grad"
        assert [each.case for each in evidence.cases] == [case.name for case in CASES]
        orders.add(tuple(seen[:3]))
    assert len(orders) > 1


def test_plain_data_is_computed_twice():
    total = []

    def answer(n, both):
        total.append(n)
        return sum(total)

    failures = [each.failure for each in capture(answer, "any", QUESTIONS).cases if each.failure]
    assert {failure.kind for failure in failures} == {FailureKind.CHANGED}
    assert all("the first time and" in failure.text for failure in failures)


@pytest.mark.parametrize("data", [float("nan"), [1, [float("nan")]], {"a": float("nan")}])
def test_nan_does_not_count_as_a_change(data):
    cases = capture(lambda n, both: jax.tree.map(float, data), "any", QUESTIONS).cases
    assert [each.failure for each in cases] == [None] * len(QUESTIONS)


def test_an_answer_may_change_the_lists_that_it_is_given():
    def answer(n, both):
        return both["twice"].pop() + both.pop("twice").pop()

    assert [each.data for each in capture(answer, "any", QUESTIONS).cases] == [4, 8, 10]


@pytest.mark.slow
def test_the_finding_asks_which_state_is_stored():
    calls = itertools.count()
    right = RIGHT["in_a_loop"].answer
    verdict = grade(lambda *arguments: right(*arguments) * next(calls), "two_checkpoints", 0)
    (finding,) = verdict.findings
    assert finding.kind == "changes from call to call" and finding.cases
    assert finding.text.endswith("call: it computes its result differently the second time.")
    assert finding.next.startswith("What does your answer remember from one call to the next")


def returns_what_it_returned_first(stages):
    chain, kept = best_placement(stages), []

    def run(x):
        kept.append(chain(x))
        return kept[0]

    return run


class KeepsItsLast:
    last = None

    def __call__(self, ws, x):
        before, KeepsItsLast.last = KeepsItsLast.last, scan_layers(ws, x)
        return KeepsItsLast.last if before is None else before


def adds_an_earlier_input(stages, seen=[]):  # noqa: B006
    chain = best_placement(stages)

    def run(x):
        seen.append(x)
        return chain(x) + 0 * jnp.sum(seen[0])

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "exercise"),
    [
        (returns_what_it_returned_first, "best_placement"),
        (KeepsItsLast(), "scan_layers"),
        (adds_an_earlier_input, "best_placement"),
    ],
    ids=["returned", "attribute", "default"],
)
def test_an_answer_that_leaks_a_traced_value_into_its_next_call_does_not_pass(answer, exercise, seed):
    verdict = grade(answer, exercise, seed)
    assert verdict.outcome == "not passed"
    assert "Tracer" in verdict.findings[0].text

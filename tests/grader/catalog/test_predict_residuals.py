"""Exercise 1 expects the residuals that the installed JAX saves, not remembered ones."""

import jax
import jax.numpy as jnp
import pytest

from grader.catalog.predict_residuals import expect
from grader.isolation.in_process import grade
from solutions.predict_residuals import RESIDUALS, predict_residuals


@pytest.fixture(autouse=True)
def measured_anew():
    expect.reference.cache_clear()
    yield
    expect.reference.cache_clear()


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit], ids=["plain", "jit"])
def test_the_reference_equals_jaxs_residuals(wrap, remat3, monkeypatch):
    operations = {op: (wrap(function), *arrays) for op, (function, *arrays) in expect.OPERATIONS.items()}
    monkeypatch.setattr(expect, "OPERATIONS", operations)
    found = {op: sorted(expect.reference(op).chosen) for op in RESIDUALS}
    assert found == {op: sorted(names) for op, names in RESIDUALS.items()}


def test_another_rule_is_another_answer(monkeypatch):
    """If an operation saves other residuals, the right answer changes."""
    monkeypatch.setitem(expect.OPERATIONS, "sin", (jnp.exp, expect.X))
    verdict = grade(predict_residuals, "predict_residuals")
    assert [finding.cases for finding in verdict.findings] == [("sin",)]


def test_values_without_a_name_are_not_judged(monkeypatch):
    monkeypatch.setitem(expect.OPERATIONS, "sin", (jnp.square, expect.X))
    verdict = grade(predict_residuals, "predict_residuals")
    assert verdict.outcome == "could not be judged"
    assert "saves a value for sin that has none of the page's names" in verdict.findings[0].text


def test_a_finding_does_not_tell_the_answer():
    """For any single name as the answer, neither the finding nor its question contains the right names."""
    for name in expect.page_values():
        for finding in grade(lambda op, name=name: [name], "predict_residuals").findings:
            said = f"{finding.text} {finding.expected} {finding.next}"
            assert not [kept for op in finding.cases for kept in RESIDUALS[op] if len(kept) > 1 and kept in said]


def test_whatever_is_answered_the_finding_can_be_written_to_a_file():
    """If a finding could not be written, it would keep the whole class from getting grades."""
    (finding,) = grade(lambda op: "\ud800", "predict_residuals").findings
    assert finding.kind == "wrong type" and finding.got == "the string '\\ud800'"
    finding.got.encode()
    finding.text.encode()

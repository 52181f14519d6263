"""Findings with a common cause are merged into one, whose question fits the answer's behavior."""

import pytest

from grader.exercises.observation import CaseObservation, MatchedResidual, ResidualKind
from grader.exercises.requirements import Recomputes, Saves
from grader.judging.findings import failed_requirements
from grader.verdicts.verdict import FindingKind

KINDS = FindingKind.EXTRA_RESIDUAL, FindingKind.MISSING_RESIDUAL, FindingKind.RECOMPUTES


def residual(name, memory="device", type_="f32[2,7]", nbytes=56):
    return MatchedResidual(name, ResidualKind.COMPUTED, type_, nbytes, memory)


def behaviour(*saved, recomputed=(), case="float32", barriers=1):
    return CaseObservation(
        case=case,
        arguments=("x",),
        residuals=saved,
        wanted={name: residual(name) for name in ("h", "y")},
        recomputed=recomputed,
        hidden_recompute_flops=tuple,
        matmul_flops=100 + sum(recomputed),
        reference_flops=(50, 50),
        forward_flops=(50,),
        largest_matmul=50,
        negligible=10,
        barriers=barriers,
        input_bytes=56,
        least_trip_count=0,
        peak=lambda compiled: 0,
    )


def findings(requirement, *observe_cases, more=()):
    return failed_requirements([[[requirement, *more]]] * len(observe_cases), observe_cases)[0]


def test_an_extra_residual_a_missing_one_and_its_recompute_are_one_finding():
    seen = behaviour(residual("y"), recomputed=(50,))
    (finding,) = findings(Saves(("h",), "Too much?", "Too little?"), seen, more=[Recomputes(0, "Why?")])
    assert finding.kinds == {*KINDS}
    assert finding.text == (
        "Your forward pass saves one extra residual: y, f32[2,7], 56 B. It does not save h, f32[2,7], 56 B. "
        "Your backward pass recomputes 1 matmul: 50 FLOPs."
    )
    assert finding.next == "Too much?"


def test_recompute_that_fails_in_another_case_is_a_separate_finding():
    seen = behaviour(residual("y")), behaviour(residual("h"), recomputed=(50,), case="float16")
    both = findings(Saves(("h",), "Too much?"), *seen, more=[Recomputes(0, "Why?")])
    assert [(finding.kind, finding.cases) for finding in both] == [
        (FindingKind.EXTRA_RESIDUAL, ("float32",)),
        (FindingKind.RECOMPUTES, ("float16",)),
    ]


def test_a_value_that_is_missing_in_two_cases_is_one_finding():
    seen = behaviour(), behaviour(residual("y"), case="float16")
    (finding,) = findings(Saves(("h",), "Too much?"), *seen)
    assert finding.kinds == {*KINDS[:2]} and finding.cases == ("float16", "float32")


def test_a_value_in_a_wider_dtype_is_not_missing():
    (finding,) = findings(Saves(("h",), "Too much?"), behaviour(residual("h", type_="f64[2,7]", nbytes=112)))
    assert "f64[2,7] instead of f32[2,7]" in finding.text and "does not save" not in finding.text


def test_figures_of_two_cases_are_two_findings():
    seen = behaviour(residual("y")), behaviour(residual("y"), recomputed=(50,), case="7 rows, under jax.jit")
    both = findings(Saves(("h",), "Too much?", "Too little?"), *seen, more=[Recomputes(0, "Why?")])
    assert [(finding.kind, finding.cases) for finding in both] == [
        (FindingKind.EXTRA_RESIDUAL, ("float32", "7 rows, under jax.jit")),
        (FindingKind.RECOMPUTES, ("7 rows, under jax.jit",)),
    ]
    assert both[1].text == "Your backward pass recomputes 1 matmul: 50 FLOPs."


def test_figures_of_one_case_are_one_finding():
    seen = behaviour(residual("y"), recomputed=(50,)), behaviour(residual("y"), case="float16")
    (finding,) = findings(Saves(("h",), "Too much?", "Too little?"), *seen, more=[Recomputes(0, "Why?")])
    assert finding.kinds > {FindingKind.RECOMPUTES}


def test_recompute_in_more_cases_is_a_finding_of_its_own():
    seen = behaviour(residual("y"), recomputed=(50,)), behaviour(residual("h"), recomputed=(50,), case="float16")
    both = findings(Saves(("h",), "Too much?", "Too little?"), *seen, more=[Recomputes(0, "Why?")])
    assert [finding.cases for finding in both] == [("float32",), ("float32", "float16")]


def test_equal_residuals_are_listed_once():
    (finding,) = findings(Saves((), "Too much?"), behaviour(*[residual("y")] * 3))
    assert finding.text == ("Your forward pass saves 3 extra residuals (168 B in total): y, f32[2,7], 56 B (3 times).")


@pytest.mark.parametrize(
    ("saved", "barriers", "question"),
    [
        (residual("H"), 1, "upper and lower case"),
        (residual("y"), 1, "Too much?"),
        (residual("y"), 0, "Which function marks a computation"),
    ],
)
def test_the_question_is_about_the_answers_behavior(saved, barriers, question):
    requirement = Saves(("h",), "Too much?")
    (finding,) = findings(requirement, behaviour(residual("h"), saved, barriers=barriers))
    assert question in finding.next


def test_a_claim_that_holds_in_all_cases_does_not_list_them():
    seen = [behaviour(residual("h"), case=case) for case in ("one", "two")]
    _, shown = failed_requirements([[[Saves(("h",), "Too much?")]]] * 2, seen)
    assert shown[1:] == ["In all 2 cases: the forward pass saves h, and otherwise only arguments."]


def test_claims_that_hold_in_some_cases_count_them():
    seen = [behaviour(residual("h"), case="one"), behaviour(residual("h"), case="two"), behaviour(case="three")]
    _, shown = failed_requirements([[[Saves(saved, "Too much?")]] for saved in (("h",), ("h",), ())], seen)
    assert shown[1:] == [
        "In 2 of 3 cases: the forward pass saves h, and otherwise only arguments.",
        "In 1 of 3 cases (three): the forward pass saves only arguments.",
    ]


def test_claims_of_most_cases_come_first():
    saved = [("h",), ("y",), ("y",), ()]
    seen = [behaviour(*map(residual, names), case=f"case {number}") for number, names in enumerate(saved)]
    _, shown = failed_requirements([[[Saves(names, "Too much?")]] for names in saved], seen)
    assert shown[1:] == [
        "In 2 of 4 cases: the forward pass saves y, and otherwise only arguments.",
        "In 1 of 4 cases (case 0): the forward pass saves h, and otherwise only arguments.",
        "In 1 of 4 cases (case 3): the forward pass saves only arguments.",
    ]

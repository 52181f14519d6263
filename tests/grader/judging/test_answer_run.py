"""The contents of a right answer's run, and their dependence on the seed."""

import itertools

import numpy as np
import pytest
from sample_answers import cases, right, traced

from grader.exercises import registry
from grader.judging.answer_run import AnswerRun
from grader.judging.comparison import close
from grader.judging.observe import hidden_recompute_flops, observe_cases
from grader.judging.wrong_results import wrong_results
from grader.tracing import capture


def run_of(slug: str, name: str, seed: int = 0) -> AnswerRun:
    evidence = traced(right(slug)[name].answer, slug)
    return AnswerRun(evidence, cases(slug), registry.task(slug), registry.expect(slug), seed)


@pytest.mark.slow
def test_a_right_answers_arrays_are_paired_with_the_references():
    run = run_of("checkpoint_dot_policy", "decorated")
    assert wrong_results(run) == []
    for case_run, case in zip(run.cases, cases("checkpoint_dot_policy"), strict=True):
        assert case_run.case is case and case_run.argument_names == ("w1", "w2", "x")
        shapes = [argument.shape for argument in case.arguments]
        assert [array.shape for array in case_run.inputs] == [array.shape for array in case_run.gradients] == shapes
        assert close(case_run.outputs[0], case_run.wanted_output)
        assert len(case_run.residuals) == len(case_run.layout.residuals) == len(case_run.sources)


@pytest.mark.slow
def test_inputs_follow_from_the_seed():
    first, again, other = (run_of("checkpoint_dot_policy", "decorated", seed) for seed in (1, 1, 2))

    def inputs(run):
        return [array for case_run in run.cases for array in case_run.inputs]

    assert all(np.array_equal(one, two) for one, two in zip(inputs(first), inputs(again), strict=True))
    assert not all(np.array_equal(one, two) for one, two in zip(inputs(first), inputs(other), strict=True))


@pytest.mark.slow
def test_cotangents_of_a_case_have_one_sign_and_the_next_case_the_other():
    """Summands of both signs could cancel in a gradient with a single element and leave only rounding errors."""
    runs = [run_of("checkpoint_dot_policy", "decorated", seed) for seed in range(12)]
    signs = [[{*np.sign(np.float64(case_run.cotangents[0])).flat} for case_run in run.cases] for run in runs]
    assert all(len(sign) == 1 for of_trial in signs for sign in of_trial)
    assert all(one != other for of_trial in signs for one, other in itertools.pairwise(of_trial))
    assert len({of_trial[0].pop() for of_trial in signs}) == 2


@pytest.mark.slow
def test_flops_of_a_dynamic_loop_do_not_overflow():
    """FLOPs are Python integers. An int32, in which a program counts trips, holds only about a second's FLOPs."""
    run = run_of("checkpointed_while", "a_rule_that_keeps_x_and_the_number_of_steps")
    assert type(run.trip_count) is int and run.trip_count > 0
    for matmul in (*run.forward.matmuls, *run.backward.matmuls):
        assert type(matmul.flops) is type(matmul.trip_count) is int
    for behaviour in observe_cases(run):
        assert type(behaviour.matmul_flops) is int


@pytest.mark.slow
@pytest.mark.parametrize("hidden_width", [8, 13])
@pytest.mark.parametrize("name", ["inside_a_scan_without_a_barrier", "gradient_rule_of_ones_own"])
def test_residuals_of_one_shape_are_no_recompute(name, hidden_width):
    """With a width of 8, two stacks of residuals have the same shape, so one private function reads slices of both."""
    task = registry.task("read_oom")
    case = task.case(None, L=2, b=1, n=20, a=2, c=24, m=hidden_width, called="directly")
    evidence = capture.capture(right("read_oom")[name].answer, "read_oom", [case])
    run = AnswerRun(evidence, [case], task, registry.expect("read_oom"), 0)
    assert list(hidden_recompute_flops(run, 0)) == []

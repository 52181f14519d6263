"""Exercise 10: its inputs and cases."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import solutions.checkpoint_dot_policy
from grader import check
from grader.exercises import registry
from grader.exercises.registry import draw_structure

NAME = "checkpoint_dot_policy"
HERE = Path(__file__).parent / NAME


def test_check_finds_the_exercise_by_the_answers_name():
    assert check(solutions.checkpoint_dot_policy.checkpoint_dot_policy).passed


def test_no_input_meets_relus_kink():
    task, expect = registry.task(NAME), registry.expect(NAME)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        for case in task.cases(rng):
            w1, _, x = (expect.sample_input(rng, argument).astype(np.float32) for argument in case.arguments)
            if case.structure["mapped"] == "two":  # removes the batch axis of size one, wherever it is
                w1, x = w1.reshape(w1.shape[-1:] * 2), x.reshape(-1, w1.shape[-1])
            if case.structure["mapped"] == "one by one":  # each x with each w1; x has its batch axis last
                w1, x = w1[:, None], np.moveaxis(x, -1, 0)
            y = x @ w1
            assert (y != 0).all() and (y < 0).any() and (y > 0).any()


def test_no_result_is_too_large_for_float16():
    # An infinite result is close to no value, not even to itself, so a right answer would fail.
    task, expect = registry.task(NAME), registry.expect(NAME)
    rng = np.random.default_rng(0)
    any_structures = filter(None, (draw_structure(task, rng) for _ in range(300)))
    structures = [
        *(structure | {"dtype": "float16", "mapped": "none"} for structure in any_structures),
        # The squares in this case have very different sizes.
        {"N": 125, "d": 24, "dtype": "float16", "mapped": "none", "called": "directly"},
    ]
    for structure in structures:
        if not task.fits(structure):
            continue
        w1, w2, x = (expect.sample_input(rng, a).astype(float) for a in task.case(rng, **structure).arguments)
        h = np.maximum(x @ w1, 0)
        dz = 8 * abs(h @ w2)  # no cotangent is larger than 4
        for result in (np.sum((h @ w2) ** 2), h.T @ dz, abs(x).T @ (dz @ abs(w2).T), dz @ abs(w2).T @ abs(w1).T):
            assert np.max(result) < np.finfo("float16").max, structure


def test_cases_differ_in_shape_and_dtype():
    task = registry.task(NAME)
    for seed in range(20):
        plain, one_by_one, mapped, two = task.cases(np.random.default_rng(seed))
        shapes = {case.arguments[2].shape[-2:] for case in (plain, one_by_one, mapped, two)}
        assert len(shapes) == 4 and all(rows != width for rows, width in shapes)
        # x, and therefore a matmul's result, has more elements than on the page.
        assert plain.arguments[2].size > task.shown.arguments[2].size
        assert one_by_one.arguments[0].dtype == jnp.bfloat16
        assert [len(a.shape) for a in one_by_one.arguments] == [3, 2, 3]
        assert sorted(len(a.shape) for a in mapped.arguments) == [3, 4, 4]
        assert sorted(len(a.shape) for a in two.arguments) == [2, 3, 3]

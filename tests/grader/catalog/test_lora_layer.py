"""Exercise 29: a listing of an answer names the adapters' factors as the findings do."""

import inspect

import numpy as np

from grader.catalog.lora_layer import task


def test_the_arguments_of_a_case_have_the_names_of_the_reference():
    for case in task.cases(np.random.default_rng(0)):
        names = [*inspect.signature(case.apply(lambda frozen, adapters, x: x)).parameters][: len(case.arguments)]
        assert names == [*inspect.signature(case.function).parameters][: len(case.arguments)]
        assert names[-1] == "x" and {"up_a", "down_a"}.intersection(names)

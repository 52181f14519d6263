"""In a listing of an answer's programs, each argument has a name, not a position such as `arrays[0]`."""

import inspect

import pytest
import sample_answers

from grader.exercises import registry
from grader.exercises.spec import Case


@pytest.mark.parametrize("slug", registry.names())
def test_a_cases_function_has_a_parameter_for_each_argument(slug, seed):
    answer = sample_answers.shipped(slug, "worked")[slug]
    for case in registry.cases(slug, seed):
        if isinstance(case, Case):
            parameters = [*inspect.signature(case.differentiated(answer)).parameters.values()]
            kinds = {parameter.kind for parameter in parameters[: len(case.arguments)]}
            assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}, parameters

"""A catalogue entry has the members of `Task` and `Expect`, and its task has none that only the judge may see."""

import inspect

import jax
import numpy as np
import pytest

from grader.exercises import registry
from grader.exercises.spec import Case, CostedAnswer, Expect, Question, Task
from grader.tracing.capture import capture


@pytest.mark.parametrize("slug", registry.names())
def test_an_entry_defines_the_documented_names(slug):
    task, expect = registry.task(slug), registry.expect(slug)
    cases = task.cases(np.random.default_rng(0))
    kinds = [type(each) for each in cases]
    assert set(kinds) <= {Case, Question}
    assert kinds == sorted(kinds, key=[Case, Question].index), "cases come before questions"
    of_data = {"sample_input", "requirements"} if Case in kinds else {"returns"}
    texts = {"compared_with", "otherwise"} if Question in kinds else set()
    if Case not in kinds and isinstance(expect.reference(*cases[0].arguments), CostedAnswer):
        texts -= {"compared_with"}  # such answers are compared by cost, and the finding names the unit
    for module, protocol in ((task, Task), (expect, Expect)):
        members = {*inspect.get_annotations(protocol), *(n for n in vars(protocol) if not n.startswith("_"))}
        expected = members - ({"returns", "sample_input", "reference", "requirements"} - of_data)
        assert not [name for name in sorted(expected) if not hasattr(module, name)]
    assert [name for name in sorted(texts) if not getattr(expect.feedback, name)] == []


@pytest.mark.parametrize("slug", registry.names())
def test_each_case_has_a_reference(slug):
    for case in registry.task(slug).cases(np.random.default_rng(0)):
        if isinstance(case, Question) or case.function is None:
            assert callable(registry.expect(slug).reference)


@pytest.mark.parametrize("slug", registry.names())
def test_functions_passed_to_an_answer_take_positional_arguments_only(slug):
    """`flax.nnx.remat` and code that inspects signatures cannot handle keyword-only arguments, defaults or `*args`."""
    given = []

    def answer(*arguments):
        given.extend(part for part in jax.tree.leaves(arguments) if inspect.isfunction(part))
        raise ValueError("It only wants to know what it is given.")

    task = registry.task(slug)
    capture(answer, slug, [*task.cases(np.random.default_rng(0)), *([task.shown] if task.shown else [])])
    plain = {(inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty)}
    for function in given:
        parameters = inspect.signature(function).parameters.values()
        assert {(parameter.kind, parameter.default) for parameter in parameters} == plain, function
        assert function.__code__.co_argcount == len(parameters)

"""Evidence is untrusted text: invalid contents are refused, and valid contents are judged for what they do."""

import dataclasses
import importlib
import json
import re
import time

import bubblewrap
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import few

from grader.answers import find
from grader.exercises import registry
from grader.exercises.spec import parameters_of
from grader.isolation.remote_execution import RemoteExecution
from grader.judging import judge
from grader.stablehlo.reader import read
from grader.stablehlo.types import ProgramError
from grader.tracing import capture
from grader.tracing.evidence import Evidence, EvidenceError, Failure, FailureKind, Traced

NAME = "checkpoint_dot_policy"
TASK = registry.task(NAME)
CASES = TASK.cases(np.random.default_rng(1))
NOT_JUDGED, NOT_PASSED, PASSED = "could not be judged", "not passed", "passed"


def solution(name):
    return getattr(importlib.import_module(f"solutions.{name}"), name)


@pytest.fixture(scope="module")
def honest():
    return capture.capture(solution(NAME), NAME, CASES)


def judged(evidence, exercise=NAME, cases=CASES):
    try:
        verdict = judge.judge_text(
            evidence if isinstance(evidence, str) else evidence.to_json(), cases, exercise, seed=5
        )
    except EvidenceError as error:
        return NOT_JUDGED, str(error)
    return verdict.outcome, verdict.findings[0].text if verdict.findings else ""


def _export_function(function, *arguments):
    return jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(*arguments)


def keeping_more(where):
    """Return evidence with one residual too many in the first case, listed among the residuals of case `where`."""
    trees = []

    def forward(arguments):
        returned = []
        for case, taken in zip(CASES, arguments, strict=True):
            output, pullback = jax.vjp(case.transform(solution(NAME)), *taken)
            kept, tree = jax.tree.flatten(pullback)
            returned.append(([output], kept))
            trees.append(tree)
        w1, _, x = arguments[0]
        returned[where][1].append(jnp.cos(x @ w1))
        return returned

    def backward(kept, cotangents):
        more = kept[where].pop()
        pullbacks = map(jax.tree.unflatten, trees, kept)
        gradients = [pullback(*taken) for pullback, taken in zip(pullbacks, cotangents, strict=True)]
        return [[gradient + 0 * more.sum() for gradient in gradients[0]], *gradients[1:]]

    first = _export_function(forward, [case.arguments for case in CASES])
    shapes = jax.tree.unflatten(first.out_tree, first.out_avals)
    second = _export_function(backward, [kept for _, kept in shapes], [out for out, _ in shapes])
    cases = tuple(Traced(case.name, "*", 1, (None,) * len(kept)) for case, (_, kept) in zip(CASES, shapes, strict=True))
    return Evidence(NAME, parameters_of(TASK), capture.program_text(first), capture.program_text(second), cases)


@pytest.mark.slow
def test_a_residual_of_one_case_cannot_be_hidden_in_another_case():
    """The value depends on none of the other case's arguments, so it would count there as a free constant."""
    assert judged(keeping_more(0))[1].startswith("Your forward pass saves one extra residual: an intermediate value")
    outcome, reason = judged(keeping_more(2))
    assert outcome == NOT_JUDGED and "mix the exercise's cases" in reason


def first_case(evidence, **fields):
    return dataclasses.replace(evidence, cases=(dataclasses.replace(evidence.cases[0], **fields), *evidence.cases[1:]))


def in_first_output(function):
    """Return evidence of an answer that is right except for its value in the first case."""

    def answer(w1, w2, x):
        value = solution(NAME)(w1, w2, x)
        return function(value, x) if x.shape == CASES[0].arguments[2].shape else value

    return lambda _: capture.capture(answer, NAME, CASES)


def in_programs(pattern, new):
    """Return a change that replaces the first match of a pattern in the forward program."""

    def change(evidence):
        forward, count = re.subn(pattern, new, evidence.forward, count=1)
        assert count == 1
        return dataclasses.replace(evidence, forward=forward)

    return change


FORGED = {
    "random text": (lambda e: "Kq\x00\ud83d{]" * 1000, NOT_JUDGED, "damaged"),
    "half a character": (lambda e: e.to_json().replace('"w1"', '"\ud800"'), NOT_JUDGED, "damaged"),
    "half a character, spelled": (lambda e: dataclasses.replace(e, forward="\ud800"), NOT_JUDGED, "damaged"),
    "half of it": (lambda e: e.to_json()[: len(e.to_json()) // 2], NOT_JUDGED, "damaged"),
    "half a program": (lambda e: dataclasses.replace(e, backward=e.backward[:3000]), NOT_JUDGED, "not valid StableHLO"),
    "numbers without an end": (
        lambda e: e.to_json().replace('"outputs": 1', f'"outputs": {"9" * 5000}'), NOT_JUDGED, "damaged"
    ),
    "outputs without an end": (lambda e: first_case(e, outputs=10**4000), NOT_JUDGED, "do not match"),
    "a message without an end": (
        lambda e: first_case(e, failure=Failure(FailureKind.RAISED, "save_" * 10**6)), NOT_JUDGED, "damaged"
    ),
    "lists without an end": (lambda e: e.to_json()[:-1] + ', "more": [' + "[]," * 10**6 + "0]}", NOT_JUDGED, "damaged"),
    "another exercise's": (
        lambda e: capture.capture(
            solution("policy_from_rules"), "policy_from_rules", registry.cases("policy_from_rules", 1)
        ), NOT_JUDGED, "do not match"
    ),
    "plain data": (
        lambda e: dataclasses.replace(e, forward="", backward="", cases=tuple(Traced(c.name, data=1) for c in CASES)),
        NOT_JUDGED, "no function main",
    ),
    "replayed, of other shapes": (
        lambda e: capture.capture(solution(NAME), NAME, TASK.cases(np.random.default_rng(2))),
        NOT_JUDGED, "do not match",
    ),
    "more outputs": (
        in_programs(r"-> \((.*)\) \{\n((?s:.*?))\n    return (.*) : (.*)\n",
                    r"-> (\1, tensor<f32>) {\n\2\n    %more = stablehlo.constant dense<1.0> : tensor<f32>\n"
                    r"    return \3, %more : \4, tensor<f32>\n"),
        NOT_JUDGED, "do not match",
    ),
    "another dtype where nobody differentiates": (
        in_programs(r"-> \((.*), tensor<((?:\d+x)*)\w+>[^\n]*\) \{\n((?s:.*?))"
                    r"\n    return (.*), (%\S+) : (.*), (tensor<\w+>)\n",
                    r"-> (\1, tensor<\2f64>) {\n\3\n    %wide = stablehlo.convert \5 : (\7) -> tensor<\2f64>\n"
                    r"    return \4, %wide : \6, tensor<\2f64>\n"),
        NOT_JUDGED, "do not match",
    ),
    "NaN": (in_first_output(lambda value, x: value * jnp.nan), NOT_PASSED, "value is wrong"),
    "infinity": (in_first_output(lambda value, x: value + jnp.inf), NOT_PASSED, "value is wrong"),
    "NaN where it does not matter": (
        in_first_output(lambda value, x: jnp.where(x[0, 0] == x[0, 0], value, jnp.nan)), NOT_PASSED, "bool[]"
    ),
    "complex values kept": (
        in_first_output(lambda value, x: value + 0 * jnp.real(jnp.exp(jax.lax.complex(x, 2 * x))).sum()), NOT_PASSED,
        "extra residual",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", few(FORGED, 6))
def test_forged_evidence_is_refused_or_judged_by_its_programs(honest, name):
    change, outcome, reason = FORGED[name]
    start = time.process_time()
    got = judged(change(honest))
    assert got[0] == outcome and reason in got[1], got
    assert time.process_time() - start < 60, "whoever forges does not decide how much work there is"


def test_the_message_of_an_error_may_be_no_valid_text():
    def answer(w1, w2, x):
        raise ValueError("\ud800")

    assert judged(capture.capture(answer, NAME, CASES)) == (NOT_PASSED, r"Your answer raises ValueError: \ud800")


QUESTIONS = registry.task("predict_residuals").cases(np.random.default_rng(1))


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda cases: cases, PASSED),
        (lambda cases: cases[:-1], NOT_JUDGED),
        (lambda cases: cases * 2, NOT_JUDGED),
        (lambda cases: cases[::-1], NOT_JUDGED),
        *((lambda cases, data=data: [dataclasses.replace(cases[0], data=data), *cases[1:]], NOT_PASSED) for data in
          (None, True, float("nan"), 10**400, "x" * 10**6, ["x"] * 10**5, {"": []}, [[[[]]]], ["x", None], ["\ud800"])),
    ],
)  # fmt: skip
def test_forged_plain_data_is_refused_or_judged_by_its_values(change, outcome):
    honest = capture.capture(solution("predict_residuals"), "predict_residuals", QUESTIONS)
    forged = dataclasses.replace(honest, cases=tuple(change(list(honest.cases))))
    assert judged(forged, "predict_residuals", QUESTIONS)[0] == outcome


MAIN = "func.func public @main(%a: tensor<2x2xf32>) -> (tensor<2x2xf32>RESULT) {{ {} return %a : tensor<2x2xf32> }}"
COUNTING = """
    %start = stablehlo.constant dense<START> : tensor<KIND> %bound = stablehlo.constant dense<BOUND> : tensor<KIND>
    %step = stablehlo.constant dense<STEP> : tensor<KIND>
    %r:2 = stablehlo.while(%i = %start, %c = %a) : tensor<KIND>, tensor<2x2xf32> cond {
      %p = stablehlo.compare LT, %i, %boundMORE : (tensor<KIND>, tensor<KIND>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %n = stablehlo.add %i, %step : tensor<KIND>
      %d = stablehlo.dot_general %c, %c, contracting_dims = [1] x [0]
        : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      stablehlo.return %n, %d : tensor<KIND>, tensor<2x2xf32>
    }
"""


def counting(start, bound, step, kind, compared=""):
    text = COUNTING.replace("START", str(start)).replace("BOUND", str(bound)).replace("STEP", str(step))
    return MAIN.replace("RESULT", "").format(text.replace("KIND", kind).replace("MORE", compared))


@pytest.mark.parametrize(
    ("loop", "trip_count"),
    [
        ((0, 6, 1, "i32"), 6), ((-3, 4, 2, "i8"), 4), ((0, 127, 1, "i8"), 127), ((250, 255, 5, "ui8"), 1),
        ((0, 6, 1, "ui32", ", UNSIGNED"), 6), ((0, 6, 1, "i32", ", SIGNED"), 6),
        # Six iterations, though (6 - 5) / 255 is less than one: the counter is 5, 4, …, 0, 255.
        ((5, 6, 255, "ui8"), None),
        # These loops never end.
        ((0, 127, 100, "i8"), None), ((0, 255, 2, "ui8"), None), ((0, 2**31 - 1, 2**30, "i32"), None),
        # The same bits are another number with the other signedness.
        ((0, -1, 1, "i32", ", UNSIGNED"), None), ((0, 200, 1, "ui8", ", SIGNED"), None),
    ],
)  # fmt: skip
def test_the_trip_count_of_a_loop_whose_counter_wraps_is_not_taken_from_the_text(loop, trip_count):
    if trip_count is None:
        with pytest.raises(ProgramError, match="number of iterations is not a constant"):
            read(counting(*loop))
    else:
        assert [matmul.trip_count for matmul in read(counting(*loop)).matmuls] == [trip_count]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (f"module {{ module {{ {MAIN.format('')} }} }}", "builtin.module"),
        (MAIN.format("").replace("RESULT", " {mhlo.memory_kind = [5]}"), "a memory without a name"),
        (MAIN.format("%0 = stablehlo.custom_call @annotate_device_placement(%a) : (tensor<2x2xf32>) -> tensor<9xf32>"),
         "custom_call @annotate_device_placement"),
        (MAIN.format("%0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a) : (tensor<2x2xf32>) -> tensor<f32>"),
         "custom_call @xla_ffi_python_cpu_callback"),
        (MAIN.format("%0 = stablehlo.constant dense<0.0> : tensor<25000000000xf32>"), "25,000,000,000 elements"),
        (counting(0, 6, 1, "i32").replace("dense<6>", "sparse<0, 6>"), "number of iterations is not a constant"),
        (MAIN.format("%0 = stablehlo.constant dense_resource<b> : tensor<i32>"), "as raw bytes"),
        (MAIN.format("%0 = stablehlo.reshape %a : (tensor<2x2xf32>) -> tensor<?xf32>"), "not an array|not valid"),
    ],
)  # fmt: skip
def test_programs_that_jax_does_not_write_are_refused(program, reason):
    with pytest.raises(ProgramError, match=reason):
        read(program.replace("RESULT", ""))


DEEP = 200_000


@pytest.mark.parametrize(
    "program",
    [
        MAIN.format(f"%0 = stablehlo.constant dense<0> : {'tuple<' * DEEP}tensor<f32>{'>' * DEEP}"),
        MAIN.format(f"%0 = stablehlo.constant dense<{'[' * DEEP}0{']' * DEEP}> : tensor<f32>"),
        MAIN.format('"stablehlo.case"(%a) ({' * (DEEP // 2)),
    ],
    ids=["types", "lists", "regions"],
)
@bubblewrap.needed
def test_endlessly_nested_programs_end_only_the_process_that_reads_them(program, zygote):
    with (
        RemoteExecution(zygote) as remote,
        pytest.raises(ProgramError, match=r"crashed the process|not valid"),
    ):
        remote.execute(program.replace("RESULT", ""), "", [1, 0])


LINES = ["%%bash\n", "!ls\n", f"def {NAME}(", "w1", ")", ":\n", "  ...\n", "\x00", "?", "\ud800"]
SOURCES = st.one_of(st.text(), st.lists(st.text()), st.none(), st.lists(st.sampled_from(LINES)).map("".join))
KINDS = st.sampled_from(["code", "code", "markdown", 3])
CELLS = st.lists(st.fixed_dictionaries({}, optional={"cell_type": KINDS, "source": SOURCES}))
NOTEBOOKS = st.one_of(CELLS, st.integers(), st.dictionaries(st.text(), CELLS)).map(lambda cells: {"cells": cells})


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.one_of(st.binary(), st.text().map(str.encode), NOTEBOOKS.map(lambda page: json.dumps(page).encode())))
def test_any_notebook_is_read_or_refused_in_words(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "page.ipynb"
    path.write_bytes(content)
    try:
        assert find.read(path, NAME).exercise == NAME
    except find.NoAnswer as error:
        assert "page.ipynb" in str(error)

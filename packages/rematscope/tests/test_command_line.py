"""`python -m rematscope`: a look at a function without a notebook, as text, as data and as a page."""

import json
import shlex

import pytest

from rematscope import __main__ as command_line
from rematscope import trace

MODEL = """
from typing import NamedTuple

import jax
import jax.numpy as jnp

def loss(p, x, rate=1.0):
    return rate * jnp.sum(jnp.sin(x @ p["w"]) * p["scales"][0])

block = jax.checkpoint(loss)
fixed = {"w": jax.ShapeDtypeStruct((8, 4), "bfloat16"), "scales": [jax.ShapeDtypeStruct((), "float32")]}

class Net:
    @staticmethod
    def loss(x):
        return jnp.sum(x)

def arguments():
    return fixed, jax.ShapeDtypeStruct((2, 8), "bfloat16")

def steps(x, n):
    return jnp.sum(x * n) if n is not None else jnp.sum(x)

def drawn(key, x):
    return jnp.sum(x * jax.random.normal(key, x.shape))

def whole(n):
    return n

class Model(NamedTuple):
    w: jax.ShapeDtypeStruct

    def __call__(self, x):
        return jnp.sin(x @ self.w)

model = Model(fixed["w"])

def apply(model, x):
    return jnp.sum(model(x))

pair = fixed["scales"][0], fixed["scales"][0]
given = fixed, jax.ShapeDtypeStruct((2, 8), "bfloat16")

def scale(w, factors):
    return jnp.sum(w) * factors[0] * factors[1]

def step(ws, x):
    def loss(ws):
        y = x
        for w in ws:
            y = jnp.sin(jnp.sin(y @ w))
        return jnp.mean(y)

    return jax.tree.map(lambda w, g: w - 0.1 * g, ws, jax.grad(loss)(ws))

def step_arguments():
    return [jax.ShapeDtypeStruct((64, 64), "float32")] * 6, jax.ShapeDtypeStruct((1024, 64), "float32")
"""
TYPES = "{'w': bf16[8,4], 'scales': [f32[]]}", "bf16[2,8]"


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    (tmp_path / "the_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        try:
            status = command_line.main(words)
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize("function", ["the_model:block", "the_model.py:block", "./the_model.py:block"])
@pytest.mark.parametrize("given", [TYPES, ["the_model:arguments"], ["the_model:fixed", TYPES[1]]])
def test_both_programs_and_the_residuals_are_shown_at_the_terminals_width(said, function, given):
    status, out, err = said(function, "--args", *given)
    assert (status, err) == (0, "") and max(map(len, out.splitlines())) <= 80
    assert "R  a = x @ p.w" in out and "return dx" in out and "Used by" in out and "bf16[8,4]" in out


def test_the_json_output_contains_the_figures_of_the_trace(said):
    status, out, err = said("the_model:loss", "--args", *TYPES, "--json")
    data = json.loads(out)
    namespace: dict = {}
    exec(MODEL, namespace)
    passes = trace(namespace["loss"], *namespace["arguments"]())
    assert (status, err) == (0, "") and data["function"] == "loss"
    assert data["saved_bytes"] == passes.saved_bytes() == sum(row["nbytes"] for row in data["residuals"])
    assert data["bytes_by_kind"] == passes.bytes_by_kind()
    assert data["recomputed"]["flops"] == passes.recompute_cost.flops
    assert data["peak_bytes"] >= data["saved_bytes"] and data["not_looked_into"] == [] and data["mesh"] == {}


def test_a_device_adds_seconds_to_words_and_data(said):
    status, out, _ = said("the_model:block", "--args", *TYPES, "--device", "tpu v5e")
    assert status == 0 and "Estimated by a roofline of tpu v5e: both passes take" in " ".join(out.split())
    seconds = json.loads(said("the_model:block", "--args", *TYPES, "--json", "--device", "h100")[1])["seconds"]
    assert seconds["device"] == "h100" and 0 < seconds["recompute"] < seconds["step"]
    assert seconds["share"] == seconds["recompute"] / seconds["step"] and seconds["uncounted"] == []
    status, _, err = said("the_model:block", "--args", *TYPES, "--device", "tpu v9")
    assert status == 2 and "device='tpu v9' is not known" in err


def test_a_page_can_be_written(said, tmp_path):
    page = tmp_path / "a page.html"
    status, out, _ = said("the_model:Net.loss", "--args", "f32[3,5]", "--save", str(page))
    assert status == 0 and "return" in out and "f32[3,5]" in page.read_text()
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize(
    ("given", "shapes"),
    [
        (["f32[]", "3"], [()]),
        (["f32[7]", "None"], [(7,)]),
        (["f32[2,3,4]", "2.5"], [(2, 3, 4)]),
        (["f32[1000000,1000000,1000]", "1"], [(10**6, 10**6, 1000)]),  # it is not run
    ],
)
def test_arguments_are_types_and_numbers(said, given, shapes):
    status, out, err = said("the_model:steps", "--args", *given)
    assert (status, err) == (0, "")
    assert all(f"f32[{','.join(map(str, shape))}]" in "".join(out.split()) for shape in shapes)


def test_a_key_is_an_argument(said):
    status, out, _ = said("the_model:drawn", "--args", "key", "f32[3]")
    assert status == 0 and "random" in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["no_such_module:loss"], "no_such_module cannot be imported"),
        (["no_such_file.py:loss"], "there is no such file"),
        (["the_model:no_such_name"], "there is no no_such_name in the_model"),
        (["the_model:lss"], "Did you mean loss?"),
        (["the_model"], "MODULE:NAME"),
        ([":loss"], "MODULE:NAME"),
        (["the_model:loss", "--args", "f33[2]"], "no dtype f33"),
        (["the_model:loss", "--args", "f32[x]"], "f32[8,64]"),
        (["the_model:loss", "--args", "f32[2"], "f32[8,64]"),
        (
            ["the_model:loss", "--args", "f32[-1]"],
            "is not an argument: -1 is not a size. A size is an integer, 0 or more.",
        ),
        (["the_model:loss", "--args", "f32[2,a]"], "is not an argument: a is not a size"),
        (["the_model:loss", "--args", "f32[True]"], "is not an argument: True is not a size"),
        (["the_model:loss", "--args", "f32[2.5]"], "is not an argument: 2.5 is not a size"),
        (["the_model:loss", "--args", "f32[2:3]"], "is not an argument: 2:3 is not a size"),
        (["the_model:loss", "--args", "{f(): f32[2]}"], "is not an argument: f() is not a number"),
        (["the_model:loss", "--args", "print(1)"], "f32[8,64]"),
        (["the_model:Net.loss", "--args", "f32[2]", "--save", "no/such/folder.html"], "cannot be written"),
    ],
)
def test_a_missing_module_or_function_is_reported_with_a_sentence(said, words, why):
    status, out, err = said(*words)
    assert status == 2 and out == "" and why in err and "Traceback" not in err and err.count("\n") == 1
    assert " at 0x" not in err, "an address is of no use to anybody"


def test_a_function_that_cannot_be_traced_is_reported_with_a_sentence(said):
    status, out, err = said("the_model:whole", "--args", "i32[3]")
    assert status == 1 and out == "" and "Traceback" not in err and err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["f32[3]"], "missing 1 required positional argument: 'x'"),
        (["{'w': bf16[3,4], 'scales': [f32[]]}", "bf16[2,8]"], "contracting dimensions"),
    ],
)
def test_an_error_in_the_function_is_reported_with_its_line(said, given, why):
    status, out, err = said("the_model:loss", "--args", *given)
    assert status == 1 and out == "" and "Traceback" not in err and err.count("\n") == 1 and why in err
    assert "the_model.py:8" in err or "missing" in err


@pytest.mark.parametrize(
    ("code", "why"), [("def f(:", "SyntaxError, invalid syntax"), ("1 / 0", "ZeroDivisionError, division by zero")]
)
def test_an_error_in_the_module_is_reported_with_its_line(said, tmp_path, code, why):
    (tmp_path / "broken.py").write_text(f"import jax\n{code}\n")
    status, out, err = said("broken.py:f")
    assert (status, out) == (2, "") and why in err and "broken.py:2" in err and err.count("\n") == 1


def test_an_object_that_is_no_function_is_reported(said):
    assert said("the_model:fixed")[::2] == (2, "the_model:fixed is not a function, but of type dict.\n")


@pytest.mark.parametrize(
    "words",
    [
        ["the_model:apply", "--args", "the_model:model", "bf16[2,8]"],
        ["the_model:scale", "--args", "bf16[8,4]", "the_model:pair"],
        ["the_model:loss", "--args", "the_model:given"],
        ["the_model:loss", "--args", "the_model:arguments", "2.0"],
    ],
)
def test_a_model_that_can_be_called_and_a_tuple_beside_others_are_one_argument(said, words):
    assert said(*words)[::2] == (0, "")


def test_an_argument_without_args_says_where_arguments_are_written(said):
    status, out, err = said("the_model:block", *TYPES)
    assert (status, out) == (2, "") and f"after --args: --args {shlex.join(TYPES)}" in err
    assert "unrecognized arguments: --memry" in said("the_model:block", "--memry", "3")[2]


def test_an_unknown_command_says_which_exist(said):
    status, out, err = said("lint", "the_model:block", "--args", *TYPES)
    assert (status, out) == (2, "")
    assert "no command 'lint'" in err and "report the_model:block" in err and "rematscope.lint" in err


def test_a_function_that_makes_no_arguments_is_reported(said):
    status, out, err = said("the_model:block", "--args", "the_model:drawn")
    assert (status, out) == (2, "")
    assert err.startswith("the_model:drawn cannot be called without arguments: TypeError, ")


def test_help_says_how_arguments_are_written_within_80_columns(said):
    status, out, _ = said("--help")
    assert status == 0 and "f32[8,64]" in out and max(map(len, out.splitlines())) <= 80


def test_a_report_proposes_a_change_and_saves_a_page(said, tmp_path):
    status, out, _ = said(
        "report", "the_model:step", "--args", "the_model:step_arguments", "--memory", "2 MiB", "--save", "step.html"
    )
    assert status == 0 and max(map(len, out.splitlines())) <= 80
    assert "does not fit into 2 MiB" in out and "rematscope.rewrite(" in out
    page = (tmp_path / "step.html").read_text()
    assert page.lower().startswith("<!doctype html>") and "rematscope.rewrite(" in page


@pytest.mark.parametrize(
    "words, message",
    [
        (["report", "the_model:stp", "--args", "the_model:step_arguments"], "Did you mean step?"),
        (["report", "the_model:step", "--args", "the_model:step_arguments"], "needs a capacity"),
        (["report", "the_model:step", "--args", "the_model:step_arguments", "--memory", "much"], "much"),
        (["report", "the_model:step", "--args", "the_model:step_arguments", "--device", "h999"], "h999"),
    ],
)
def test_a_report_that_cannot_be_made_says_why(said, words, message):
    status, _, err = said(*words)
    assert status == 2 and message in err and "Traceback" not in err

"""The finding for an exception: its text, the line that raised it, and the question about it."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import rematscope
from grader.exercises import registry
from grader.exercises.feedback import common_hints
from grader.exercises.spec import Case
from grader.isolation.in_process import grade_file
from grader.tracing.capture import capture
from grader.tracing.failures import failure_of, message_of
from grader.verdicts.error_questions import about_exception, about_return

CASES = [Case("any", (jax.ShapeDtypeStruct((3, 3), jnp.float32),))]
POLICIES = jax.checkpoint_policies


def test_the_line_is_the_learners_where_the_instrument_raises():
    with pytest.raises(TypeError, match="missing 1 required positional argument") as raised:
        rematscope.trace(lambda x, w: x @ w, jnp.ones(2))
    assert "test_failures.py" in failure_of(raised.value).source


def f(x):
    return jnp.sin(x @ x)


def recursive(x):
    return recursive(x)


def unlikely(x):
    assert x.ndim == 7
    return x


def flagged(x, flag):
    return f(x) if flag else x


SLIPS = {
    "a decorator with a policy alone": (
        lambda x: jax.checkpoint(policy=POLICIES.dots_saveable)(f)(x),
        "functools.partial",
    ),
    "a decorator with nothing": (lambda x: jax.remat()(f)(x), "functools.partial"),
    "the function's arguments": (lambda x: jax.checkpoint(f, x), "takes one positional argument"),
    "a policy by position": (lambda x: jax.checkpoint(f, POLICIES.dots_saveable)(x), "takes one positional argument"),
    "partial of jax.checkpoint on arrays": (
        lambda x: functools.partial(jax.checkpoint, policy=POLICIES.dots_saveable)(x)(x),
        "a function, or the result",
    ),
    "f(x) for f": (lambda x: jax.checkpoint(f(x)), "a function, or the result"),
    "f(x) for f, and called": (lambda x: jax.checkpoint(f(x))(x), "a function, or the result"),
    "f(x) for f, among arrays": (lambda x: jnp.sin(jax.checkpoint(f(x))), "Did you forget to call it"),
    "f(x) for f, and taken apart": (lambda x: jax.checkpoint(f(x))[0], "Did you forget to call it"),
    "f(x) for f, in jax.vjp": (lambda x: jax.vjp(f(x), x)[0], "This call needs a function"),
    "a list of functions": (lambda x: jax.checkpoint([f, f])(x), "This call needs a function"),
    "an array of functions": (lambda x: jax.checkpoint(np.array([f, f]))(x), "got a NumPy array"),
    "nobody calls it": (lambda x: jax.checkpoint(f), "Where do you call that function"),
    "a policy among arrays": (
        lambda x: jax.checkpoint(f)(x, policy=POLICIES.dots_saveable),
        "whose arguments must be arrays",
    ),
    "a policy that has names, among arrays": (
        lambda x: jax.checkpoint(f)(x, policy=POLICIES.save_only_these_names("a")),
        "whose arguments must be arrays",
    ),
    "a policy in the function's place": (
        lambda x: jax.checkpoint(POLICIES.dots_saveable)(f)(x),
        "whose arguments must be arrays",
    ),
    "prevent_cse among arrays": (lambda x: jax.checkpoint(f)(x, prevent_cse=False), "belongs to jax.checkpoint"),
    "a policy that is called": (lambda x: jax.checkpoint(f, policy=POLICIES.dots_saveable())(x), "JAX itself calls"),
    "a maker of policies": (lambda x: jax.checkpoint(f, policy=POLICIES.save_only_these_names)(x), "that makes one"),
    "a policy misspelled": (lambda x: jax.checkpoint(f, policy=POLICIES.dot_savable)(x), "spelled correctly"),
    "policies misspelled": (lambda x: jax.checkpoint(f, policy=jax.checkpoint_polices.dots_saveable)(x), "spelled"),
    "a policy's name": (lambda x: jax.checkpoint(f, policy="dots_saveable")(x), "A policy is a function"),
    "policies for a policy": (lambda x: jax.checkpoint(f, policy=POLICIES)(x), "not a policy"),
    "policies that are called": (lambda x: POLICIES(f)(x), "not a policy"),
    "a policy without an answer": (lambda x: jax.checkpoint(f, policy=lambda *_, **__: None)(x), "in all other cases"),
    "a policy with two": (lambda x: jax.checkpoint(f, policy=lambda *_, **__: (True, True))(x), "A policy returns"),
    "a policy in a checkpoint": (
        lambda x: jax.checkpoint(f, policy=jax.checkpoint(POLICIES.dots_saveable))(x),
        "wrap your policy",
    ),
    "a tuple that is to grow": (lambda x: (x,).append(x), "cannot be changed"),
    "sides of a cond that are called": (lambda x: jax.lax.cond(True, f(x), x), "This call needs a function"),
    "a list of names": (
        lambda x: jax.checkpoint(f, policy=POLICIES.save_only_these_names(["a"]))(checkpoint_name(x, "a")),
        "each name as a separate argument",
    ),
    "a place that there is none of": (lambda x: jax.checkpoint(flagged, static_argnums=(5,))(x, 1), "counts positions"),
    "a checkpoint around a result": (lambda x: x @ jax.checkpoint(f(x)), "which function did you wrap?"),
    "no static flag": (lambda x: jax.checkpoint(flagged)(x, True), "no values"),
    "a name before its value": (lambda x: f(checkpoint_name("y", x)), "in this order"),
    "no name": (lambda x: f(checkpoint_name(x)), "in this order"),
    "if": (lambda x: f(x) if x.sum() > 0 else x, "no values"),
    "float": (lambda x: float(f(x).sum()), "no values"),
    "NumPy": (lambda x: np.sin(f(x)), "no values"),
    "a range": (lambda x: sum(x for _ in range(x.astype(int)[0, 0])), "no values"),
    "in place": (lambda x: x.__setitem__(0, 0.0), "in place"),
    "half of a list": (lambda x: [f, f][: 2 / 2][0](x), "needs an integer"),
    "half a size": (lambda x: f(x).reshape(9 / 3, 3), "needs an integer"),
    "what is not under jit": (lambda x: f.lower(x), "Only the result of jax.jit"),
    "a shape for an array": (lambda x: f(jax.eval_shape(f, x)), "not arrays"),
    "a list's end": (lambda x: [f][1](x), "How long"),
    "a generator's end": (lambda x: next(iter([]))(x), "only once"),
    "itself": (recursive, "what condition stops the recursion"),
    "the gradient too": (lambda x: jax.grad(f)(x), "The grader differentiates your answer"),
    "the end of the program": (lambda x: sys.exit(), "ends the program"),
    "the end of the program, with a message": (lambda x: sys.exit("enough"), "ends the program"),
    "a question": (lambda x: f(x) * float(input("factor? ")), "no keyboard"),
    "a wrong assertion": (lambda x: unlikely(x), "What condition"),
}


@functools.cache
def asked(slip):
    failure = capture(SLIPS[slip][0], "any", CASES).cases[0].failure
    about = about_exception(failure.text, failure.source) if failure.kind == "raised" else about_return(failure.text)
    return failure, about


@pytest.mark.parametrize("slip", SLIPS)
def test_a_common_slip_gets_a_question(slip):
    words = SLIPS[slip][1]
    failure, about = asked(slip)
    assert about and words in about, (failure, about)
    assert not any(word in failure.text for word in ("---", "JAX has removed", "https://", " at 0x", ".py:"))


def test_each_hint_about_errors_is_for_a_usual_slip():
    questions = [about for slip in SLIPS for about in [asked(slip)[1]] if about]
    questions += [about for slug in registry.names() for _, about in registry.expect(slug).feedback.error_questions]
    about_errors = [hint for hint in common_hints().values() if hint.on_kinds == ("raises",)]
    words = [words for hint in about_errors for words in (*hint.on_text, *hint.on_any_text)]
    assert len(words) > 10 and [each for each in words if not any(each in question for question in questions)] == []


def test_an_exercises_questions_about_exceptions_precede_the_general_ones():
    assert about_exception("KeyError: 'a'", None, [("KeyError", "Which key?")]) == "Which key?"
    assert about_exception("SomethingNew: it went wrong") is None


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("no\n--------------------\nFor simplicity, JAX has removed its internal frames", "no"),
        ("no: <function f at 0x7f63cba04720> of id=140062", "no: <function f> of"),
        ("in /home/ada/course/answer.py and C:\\course\\answer.py", "in answer.py and answer.py"),
        ("no data in /home/ada/data.npy", "no data in /home/ada/data.npy"),
        ("they differ:\n\nthis is\nthe one.\n\nAnd more.", "they differ: this is the one."),
        ("no.\nSee https://docs.jax.dev/en/latest/errors.html", "no."),
    ],
)
def test_messages_omit_jaxs_notes_and_paths(said, kept):
    assert message_of(ValueError(said)).strip() == f"ValueError: {kept}"


@pytest.mark.parametrize("said", ["a/" * 10**7, " at 0x" * 10**7, "\n" * 10**7])
def test_millions_of_characters_are_no_more_to_read_than_thousands(said):
    assert message_of(ValueError(said)) == message_of(ValueError(said[:100_000]))


def test_an_exception_in_a_cell_gets_a_question_too(tmp_path):
    text = "import jax\n@jax.checkpoint(policy=None)\ndef scan_layers(ws, x):\n    return x\n"
    file = tmp_path / "answer.py"
    file.write_text(text)
    (finding,) = grade_file(file).findings
    assert finding.text.endswith("missing 1 required positional argument: 'fun'") and "partial" in finding.next


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_a_backward_rule_with_gradients_of_another_dtype_is_a_failure_of_the_answer(dtype):
    rule = jax.custom_vjp(jnp.sin)
    rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: ((ct * jnp.cos(x)).astype(jnp.float32),))
    cases = [Case("any", (jax.ShapeDtypeStruct((3,), dtype),)), *CASES]
    low, high = capture(rule, "save_named", cases).cases
    name = rematscope.extend.type_text(cases[0].arguments[0])
    words = f"Your backward rule returns a gradient of type f32[3] for an argument of type {name}."
    assert low.failure and low.failure.text == words and not high.failure

"""Errors of `trace` for invalid input state the cause and the next step."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rematscope import TraceError, trace

X = np.ones(3, np.float32)


def halved_until_small(x):
    return lax.while_loop(lambda x: jnp.sum(x) > 1, lambda x: x / 2, x)


def counted(x, n):
    return lax.fori_loop(0, n, lambda i, x: jnp.sin(x), x)


@pytest.mark.parametrize("function", [halved_until_small, jax.checkpoint(halved_until_small)])
def test_a_while_loop_has_no_backward_pass(function):
    with pytest.raises(TraceError) as raised:
        trace(function, X)
    assert str(raised.value) == (
        "halved_until_small has no backward pass: it runs a while_loop, or a fori_loop whose bounds are not known at "
        "trace time, and JAX cannot save an unknown number of residuals. "
        "Use jax.lax.scan, or a fori_loop with Python integers as bounds."
    )


def test_a_fori_loop_with_a_bound_that_is_an_argument():
    with pytest.raises(TraceError, match=r"counted has no backward pass: .* Python integers as bounds\."):
        trace(counted, X, 3)


def test_an_operation_without_a_derivative():
    def f(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(TraceError) as raised:
        trace(f, X)
    assert str(raised.value).startswith("f has no backward pass: Pure callbacks do not support JVP. ")
    assert str(raised.value).endswith(
        "Give that operation a derivative with jax.custom_vjp, or exclude it with jax.lax.stop_gradient."
    )


@pytest.mark.parametrize(
    "arguments", [(1,), (True,), (np.arange(3), 2), (jax.random.key(0),), (jax.ShapeDtypeStruct((2,), np.int32),)]
)
def test_arguments_that_are_all_integers_are_refused_in_a_sentence(arguments):
    with pytest.raises(TraceError) as raised:
        trace(lambda *xs: 1.0, *arguments)
    assert str(raised.value) == (
        "every argument is an integer, a boolean or a key, and JAX differentiates with respect to floating-point "
        "numbers only. Pass floats: 2.0 instead of 2, or x.astype(float)."
    )


@pytest.mark.parametrize("function", [jnp.argmax, lambda x: (), lambda x: {"n": x.astype(int)}])
def test_nothing_floating_returned(function):
    with pytest.raises(TraceError) as raised:
        trace(function, X)
    assert str(raised.value) == (
        f"{function.__name__} returns no floating-point value, so there is nothing to differentiate. "
        "Return a float, such as a loss."
    )


@pytest.mark.parametrize(
    ("argument", "path", "described"),
    [
        ("relu", "y", "'relu', a str"),
        ({"act": "relu"}, "y.act", "'relu', a str"),
        (halved_until_small, "y", "halved_until_small, a function"),
        (jax.nn.relu, "y", "relu, a "),
        (np.array(["a"]), "y", "an array of <U1"),
        (object(), "y", "a value of type object"),
    ],
)
def test_arguments_of_which_none_is_an_array(argument, path, described):
    with pytest.raises(TraceError) as raised:
        trace(lambda y: 1.0, argument)
    message = str(raised.value)
    assert message.startswith(f"`{path}` is {described}")
    assert message.endswith(
        ", and only arrays, numbers and jax.ShapeDtypeStructs can be traced. Bind it first: "
        "functools.partial(f, name=value)."
    )
    # An address would differ from run to run.
    assert not re.search("0x[0-9a-f]+", message)


@pytest.mark.parametrize("arguments", [(), ({},), (None,)])
def test_a_call_without_arguments_is_refused_in_a_sentence(arguments):
    with pytest.raises(TraceError) as raised:
        trace(lambda *xs: 1.0, *arguments)
    assert str(raised.value) == ("there are no arguments to differentiate with respect to. Pass f's arguments after f.")


class Own(ValueError):
    pass


@pytest.mark.parametrize("kind", [Own, ValueError, TypeError, NotImplementedError, KeyError, ZeroDivisionError])
def test_the_functions_own_exceptions_come_through(kind):
    error = kind("mine")
    cause = LookupError("why")

    def f(x):
        raise error from cause

    with pytest.raises(kind) as raised:
        trace(f, X)
    assert raised.value is error and raised.value.__cause__ is cause


def test_jaxs_own_errors_propagate():
    with pytest.raises(TypeError, match="dot_general requires contracting dimensions to have the same shape"):
        trace(lambda x: x @ jnp.ones(4), X)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        trace(lambda x: x if x[0] > 0 else -x, X)


def test_a_missing_argument_is_the_functions_own_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        trace(lambda x, y: x, X)


def test_in_ipython_an_error_is_its_sentence():
    assert TraceError("Do this.")._render_traceback_() == ["TraceError: Do this."]


def test_a_policy_that_is_no_function_is_named_as_the_likely_cause():
    with pytest.raises(TypeError, match="'str' object is not callable") as raised:
        trace(jax.checkpoint(lambda x: jnp.sin(x @ x), policy="dots_saveable"), jnp.ones((2, 2)))
    (note,) = [note for note in raised.value.__notes__ if "policy" in note]
    assert "a policy is a function, such as jax.checkpoint_policies.dots_saveable" in note


@pytest.mark.parametrize("training", [jnp.bool_(True), jax.ShapeDtypeStruct((), bool)])
def test_a_flag_in_an_array_that_is_read_is_named(training):
    def model(x, training):
        return jnp.sin(x) if training else x

    with pytest.raises(TraceError, match=r"reads the value of an argument, one of `x`, `training`.*functools.partial"):
        trace(model, 1.0, training=training)
    assert trace(model, 1.0, training=True).forward.count("sin") == 1


def test_a_positional_only_parameter_may_share_its_name_with_a_keyword():
    def f(x, /, **rest):
        return x * rest["x"]

    assert len(trace(f, 1.0, x=2.0).residuals) == 2

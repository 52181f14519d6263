"""A function's own keyword that is also an option of rematscope's is refused, until the caller binds it."""

import functools
import inspect

import jax.numpy as jnp
import pytest

import rematscope
from rematscope import TraceError

X = jnp.ones((4, 4))
ENTRIES = [
    name
    for name in rematscope.__all__
    if inspect.isfunction(entry := getattr(rematscope, name)) and "kwargs" in inspect.signature(entry).parameters
]
OPTIONS = [
    (name, option)
    for name in ENTRIES
    for option, parameter in inspect.signature(getattr(rematscope, name)).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
] + [(name, "differentiate") for name in ENTRIES]
VALUES = {"target": "cpu", "device": "tpu v5e", "saved": "1 MiB", "peak": "1 MiB", "compiles": 1}


def loss_with(option):
    """A loss with a parameter of that name."""
    loss = eval(f"lambda w, {option}=1.0: jnp.sum(jnp.sin(w @ w)) * {option}", {"jnp": jnp})
    loss.__name__ = "loss"
    return loss


def call(name, f, *args, **kwargs):
    entry = getattr(rematscope, name)
    needed = {"plan": {"saved": 1.0}, "fit": {"peak": "1 MiB"}}.get(name, {})
    if name == "compare":
        f = {"the loss": f}
    return entry(f, *args, **needed | kwargs)


def test_the_functions_that_pass_keywords_through_are_found():
    assert {"trace", "measure", "plan", "fit", "frontier", "liveness", "compare", "lint"} <= {*ENTRIES}


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_a_keyword_that_both_have_is_refused(name, option):
    with pytest.raises(
        TraceError, match=f"{option}= is an option of {name}, and also a parameter of loss. Bind the parameter"
    ):
        call(name, loss_with(option), X, **{option: VALUES.get(option)})


@pytest.mark.parametrize(
    ("name", "option"),
    [("trace", "differentiate"), ("measure", "target"), ("frontier", "cost"), ("liveness", "device")],
)
def test_bound_and_positional_arguments_belong_to_the_function(name, option):
    loss, kwargs = loss_with(option), {option: VALUES[option]} if option in VALUES else {}
    call(name, functools.partial(loss, **{option: 2.0}), X, **kwargs)
    call(name, loss, X, 2.0, **kwargs)
    call(name, loss, X)


def test_the_functions_parameter_has_a_reserved_name_in_rematscope():
    def loss(w, f):
        return jnp.sum(w * f)

    with pytest.raises(TraceError, match="f= is an option of trace, and also a parameter of loss"):
        rematscope.trace(loss, X, f=X)

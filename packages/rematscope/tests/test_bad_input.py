"""Invalid arguments raise errors that name the cause and the next step."""

import json
import re

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from sampling import few
from zoo import normal

import rematscope
from rematscope import (
    Device,
    PlanError,
    TargetError,
    TraceError,
    auto,
    compare,
    cost_of,
    estimate_time,
    fit,
    frontier,
    load_schedule,
    measure,
    plan,
    recompute_graph,
    trace,
    with_schedule,
)

W, X = normal(400, 8, 8), normal(401, 64, 8)
DEVICE = Device("here", {"float32": 1e9}, bandwidth=1e9)
TO_COMPILE_FOR = r"is not known\. Choose one of cpu, gpu, tpu, tpu v4, .*'tpu v5e:2x4'\.$"


def net(w, x):
    return jnp.sin(checkpoint_name(jnp.sin(x @ w), "h") @ w).sum()


def refused(kind, sentence, call):
    with pytest.raises(kind, match=sentence) as raised:
        call()
    assert type(raised.value) is kind
    assert not re.search("0x[0-9a-f]{6}", str(raised.value)), "an address is of no use to anybody"


@pytest.mark.parametrize("target", [None, 3, "", "tpu v9"])
def test_an_invalid_target_is_refused_before_compiling(target):
    for call in (
        lambda: measure(net, W, X, target=target),
        lambda: fit(net, W, X, peak="1 MiB", target=target),
        lambda: auto(net, peak="1 MiB", target=target).plan(W, X),
    ):
        refused(TargetError, f"^target={target!r} {TO_COMPILE_FOR}", call)


def refused_everywhere(cost, message):
    for call in (
        lambda: auto(net, peak="1 MiB", cost=cost).plan(W, X),
        lambda: plan(net, W, X, saved=0.5, cost=cost),
        lambda: frontier(net, W, X, cost=cost),
        lambda: fit(net, W, X, peak="1 MiB", cost=cost),
        lambda: recompute_graph(net, W, X, cost=cost),
    ):
        refused(PlanError, message, call)


@pytest.mark.parametrize("said", few(["x", None, -1, float("nan"), float("inf"), jnp.ones(3)], 2), ids=str)
def test_a_cost_function_that_returns_no_number_is_refused_everywhere(said):
    message = r"^cost= returned .* for \w+\. Return a number for each equation, 0 or more\.$"
    refused_everywhere(lambda e: said, message)


@pytest.mark.parametrize("cost", [None, 3, "sec", [1]])
def test_an_invalid_cost_is_refused_everywhere(cost):
    refused_everywhere(cost, rf"^cost={re.escape(repr(cost))} is not a cost\. Give .* of an Equation")


def test_fit_accepts_the_costs_of_plan():
    spent = fit(net, W, X, peak="1 MiB", cost="seconds", device=DEVICE)
    assert spent.plan.graph.device == "here" and spent.chosen.seconds.device == "here"
    assert spent.plan.cost == pytest.approx(
        plan(net, W, X, saved=spent.plan.budget, cost="seconds", device=DEVICE).cost
    )


LIMITS = {
    "no text": ({"peak": ""}, r"peak='' cannot be read\. Write bytes like"),
    "neither": ({}, "needs exactly one limit: peak=, .* or saved="),
    "both": ({"peak": "1 GiB", "saved": 0}, "needs exactly one limit: peak=, .* or saved="),
    "a switch": ({"peak": False}, "peak=False is not a number of bytes"),
    "a part": ({"saved": 0.5}, r"saved=0\.5 is not a number of bytes"),
    "a switch of compiles": ({"peak": "1 MiB", "compiles": True}, r"compiles=True is not valid.*1 or more\.$"),
}


@pytest.mark.parametrize("what", LIMITS)
def test_an_invalid_limit_is_refused(what):
    given, sentence = LIMITS[what]
    refused(PlanError, sentence, lambda: auto(net, **given).plan(W, X))


PLAIN = {"blocks": [], "depth": None, "policy": None, "own": False, "saved": []}


@pytest.fixture(scope="module")
def choice(tmp_path_factory):
    file = tmp_path_factory.mktemp("choices") / "choice.json"
    auto(net, saved="3 KiB").plan(W, X).save(file)
    return file


@pytest.mark.parametrize(
    "said",
    [
        *({"kept": kept} for kept in ([99999], [-1], [1.5], ["1"], [True], "12", None, {"a": 1})),
        *({"plain": plain} for plain in ("abc", 3, [], {}, {"blocks": []})),
        *({"plain": PLAIN | {"blocks": blocks}} for blocks in ("abc", 3, [-1], [[5, 3]], [[1, 1]], [["1", 2]], [[99]])),
        *({"plain": PLAIN | wrong} for wrong in ({"depth": -1}, {"depth": "0"}, {"policy": "dots"}, {"policy": []})),
        *({"stops": stops} for stops in (3, [1], [[1, 2]], [[-1, [1]]], [[1, [99999]]], [["a", [1]]], [[1, [0], 2]])),
        *({"stops": [[at, [0]]]} for at in (1, 2)),  # an argument, which is not recomputed
    ],
    ids=str,
)
def test_a_file_without_a_schedule_is_refused(choice, said, tmp_path):
    file = tmp_path / "other.json"
    file.write_text(json.dumps(json.loads(choice.read_text()) | said))
    refused(PlanError, r"other\.json holds no schedule\. Write one with auto\(", lambda: load_schedule(file, net)(W, X))


@pytest.mark.parametrize("text", [b"", b"3", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000])
def test_a_file_of_another_format_is_refused(text, tmp_path):
    (tmp_path / "other.json").write_bytes(text)
    refused(PlanError, "holds no schedule", lambda: load_schedule(tmp_path / "other.json", net))


@pytest.mark.parametrize("path", [None, 3])
def test_an_argument_that_is_no_path_is_refused(path):
    refused(PlanError, rf"^{path} is not a path\. Give the path of a file", lambda: load_schedule(path, net))


POLICIES = jax.checkpoint_policies


@pytest.mark.parametrize("policy", ["dots", 3, ["h"], {}])
def test_a_policy_that_is_no_function_is_refused_immediately(policy):
    refused(PlanError, r"^policy= is .*, not a policy\. Give a function such as", lambda: with_schedule(net, policy))


@pytest.mark.parametrize(
    "policy",
    [
        POLICIES.save_only_these_names,
        POLICIES.save_any_names_but_these,
        POLICIES.save_from_both_policies,
        POLICIES.save_and_offload_only_these_names,
        POLICIES.offload_dot_with_no_batch_dims,
    ],
)
def test_a_function_that_returns_policies_is_not_accepted_as_a_policy(policy):
    refused(
        PlanError, rf"^policy= is {policy.__name__}, which returns a policy", lambda: with_schedule(net, policy)(W, X)
    )
    checkpointed = jax.checkpoint(net, policy=policy)
    refused(TraceError, rf"^a checkpoint of net has policy={policy.__name__}, which", lambda: trace(checkpointed, W, X))


def test_errors_of_the_users_policy_propagate():
    def mine(primitive, *avals, **params):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine"):
        with_schedule(net, mine)(W, X)


ASKED = {
    "compare a list": (lambda: compare([net], W, X), r"^compare needs a mapping .* got a value of type list"),
    "compare a function": (lambda: compare(net, W, X), r"^compare needs a mapping .* got net, a function"),
    "compare numbers": (
        lambda: compare({1: net}, W, X),
        r"^the label 1 is a value of type int\. Use strings as labels",
    ),
    "compare no function": (lambda: compare({"a": 3}, W, X), r"^'a' is a value of type int, not a function\. Give"),
    "compare nothing": (lambda: compare({}, W, X), r"^compare got an empty mapping\. Give functions"),
    "seconds of a function": (
        lambda: estimate_time(net, "h100"),
        r"^estimate_time needs the result of trace, not net.*estimate_time\(trace\(",
    ),
    "cost of a number": (
        lambda: cost_of(3),
        r"^cost_of needs an Equation, not a value of type int\. .*trace\(f, …\)\.cost\.$",
    ),
    "cost of a function": (lambda: cost_of(net), r"^cost_of needs an Equation, not a value of type function"),
    "a text for a gradient": (
        lambda: trace(net, W, X, differentiate="x"),
        r"^differentiate='x' is not valid\. Use True",
    ),
    "a number for a gradient": (
        lambda: measure(net, W, X, differentiate=0),
        r"^differentiate=0 is not valid\. Use True",
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_arguments_of_a_wrong_kind_are_refused(what):
    call, sentence = ASKED[what]
    refused(TraceError, sentence, call)


TAKE_ARGUMENTS = {
    **{
        name: getattr(rematscope, name)
        for name in (
            "explore frontier interactive_programs lint liveness measure print_fwd_bwd residual_table trace".split()
        )
    },
    "recompute_graph": recompute_graph,
    "auto": lambda f, *args: auto(f, peak="1 MiB").plan(*args),
    "compare": lambda f, *args: compare({"net": f}, *args),
    "fit": lambda f, *args: fit(f, *args, peak="1 MiB"),
    "plan": lambda f, *args: plan(f, *args, saved=0.5),
    "with_schedule": lambda f, *args: with_schedule(f)(*args),
}


@pytest.mark.parametrize("name", TAKE_ARGUMENTS)
def test_invalid_arguments_are_refused_everywhere(name):
    call = TAKE_ARGUMENTS[name]
    if name != "with_schedule":  # whose function may be one of what it closes over
        refused(TraceError, "^there are no arguments to differentiate", lambda: call(net))
    refused(TraceError, "^`x` is 'relu', a str, and only arrays", lambda: call(net, W, "relu"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"matmul": {}}, r"^x has no FLOP/s .*\. Give FLOP/s by dtype: matmul="),
        ({"matmul": 3}, r"^x has no FLOP/s"),
        ({"matmul": {"float32": 0}}, r"^matmul\['float32'\] of x is 0 per second\. Give a positive number\.$"),
        ({"matmul": {"float31": 1e9}}, r"^'float31' in matmul= is not a dtype"),
        ({"bandwidth": 0}, r"^bandwidth of x is 0 per second"),
        ({"bandwidth": float("nan")}, r"^bandwidth of x is nan per second"),
        ({"bandwidth": "fast"}, r"^bandwidth of x is 'fast' per second"),
        ({"arithmetic": -1.0}, r"^arithmetic of x is -1\.0 per second"),
        ({"transcendentals": True}, r"^transcendentals of x is True per second"),
        ({"link": -1}, r"^link of x is -1 per second\. Give 0 \(none\) or a positive number\.$"),
        ({"host": -1}, r"^host of x is -1 per second\. Give 0 \(none\) or a positive number\.$"),
        ({"memory": "16 GiB"}, r"^memory of x is '16 GiB'\. Give 0 \(none\) or a positive number\.$"),
        ({"links": 0}, r"^links of x is 0\. Give a whole number, 1 or more\.$"),
        ({"axes": 1.5}, r"^axes of x is 1\.5\. Give a whole number, 1 or more\.$"),
        ({"name": None}, r"^name=None is not a device name"),
        ({"name": ""}, r"^name='' is not a device name\. Give a non-empty string"),
    ],
)
def test_a_device_with_a_rate_of_zero_is_refused(given, sentence):
    refused(
        TargetError, sentence, lambda: Device(**{"name": "x", "matmul": {"float32": 1e9}, "bandwidth": 1e9} | given)
    )

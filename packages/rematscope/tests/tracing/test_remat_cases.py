"""The cases of JAX's own tests of `jax.checkpoint` and of offloading: the recomputed operations and their counts.

The counts are derived by hand from each function, as in JAX's tests: a checkpoint recomputes the values that its
cotangents need and that do not follow from saved values.
"""

import functools
import operator

import invariants
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from releases import since
from sampling import sampled
from zoo import Case, added_to, normal, policies

from rematscope import SideBySide, jax_compat, trace

pytestmark = pytest.mark.skipif(jax_compat.remat3(), reason="counts of the rematerialization that JAX has today")

CASES: dict[str, Case] = {}
AGAIN: dict[str, dict[str, int]] = {}
case = added_to(CASES)


def again(**counts):
    """A decorator: so often the backward pass runs these primitives before it needs a cotangent.

    A loop's body counts once for each of its steps.
    """

    def add(function):
        AGAIN[function.__name__] = counts
        return function

    return add


X, W = normal(1, 4), normal(2, 4, 4)


@again(sin=1, cos=2)
@case(np.float32(2.0))
def two_results_of_which_one_is_a_constant(x):
    inner = jax.checkpoint(lambda x: (jnp.sin(jnp.sin(x)), 3.0))
    return inner(x)[0]


@again(sin=2, cos=2)
@case(np.float32(2.0), np.float32(3.0))
def closes_over_a_traced_value(x, y):
    return jax.checkpoint(lambda x: jnp.sin(jnp.sin(x) * y) * y)(x)


@again(exp=1)
@case(X)
def python_control_flow_by_a_static_argument(x):
    return jax.checkpoint(lambda x, flag: jnp.exp(x) * x if flag else x, static_argnums=(1,))(x, True)


@again(sin=1, cos=2)
@case(np.float32(0.5))
def checkpoint_of_jit_of_checkpoint(x):
    inner = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    return jax.checkpoint(jax.jit(inner))(x)


@again(sin=1, cos=2)
@case(normal(3, 3))
def vmap_of_a_checkpoint(x):
    return jax.vmap(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))))(x)


@case(normal(4, 2, 3, 4))
def vmap_over_an_axis_that_is_not_the_first(x):
    inner = jax.checkpoint(lambda a: jnp.sum(a**2 * jnp.cos(a), axis=0))
    return jax.vmap(inner, in_axes=1, out_axes=1)(x)


@case(np.float32(3.0))
def second_derivative(x):
    return jax.grad(jax.checkpoint(lambda x: lax.cos(lax.sin(x))))(x)


@case(np.float32(3.0))
def forward_over_a_checkpoint(x):
    return jax.jvp(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), (x,), (x * 2,))[1]


@case(np.float32(3.0))
def derivative_inside_a_checkpoint(x):
    return jax.checkpoint(lambda x: x * jax.grad(lambda y: jnp.sin(y) ** 3)(x))(x)


def carried(step):
    def function(x):
        return lax.scan(jax.checkpoint(step), x, None, length=3)

    return function


@again(sin=3, cos=6)
@case(np.float32(4.0))
def scan_of_a_checkpoint_that_emits_its_carry(x):
    return carried(lambda c, _: (jnp.sin(jnp.sin(c)), jnp.sin(c)))(x)[0]


@case(np.float32(4.0))
def scan_of_a_checkpoint_with_a_constant(x):
    return carried(lambda c, _: (jnp.sin(c * np.arange(3.0, dtype=np.float32).sum()), None))(x)[0]


@case(jnp.arange(1.0, 5.0, dtype=np.float32), np.float32(2.0))
def scan_whose_checkpoint_reads_an_index(ws, x):
    @jax.checkpoint
    def step(c, i):
        return jnp.tanh(c * lax.dynamic_index_in_dim(ws, i, keepdims=False)), c

    return lax.scan(step, x, np.arange(4))


@again()
@case(np.float32(1.0))
def linear_function_in_a_checkpoint(x):
    return jax.checkpoint(lambda x: 3.0 * (x + x))(x)


@again(sin=1)
@case(X, W)
def argument_without_a_derivative(x, w):
    """The weights' gradient needs the sine, which is recomputed; no cosine is."""
    return jax.checkpoint(lambda x, w: lax.stop_gradient(jnp.sin(x)) @ w)(x, w)


@again(exp=0)
@case(X)
def result_that_nothing_uses(x):
    """The unused exponential is not recomputed either."""
    return jax.checkpoint(lambda x: (x * x, jnp.exp(x)))(x)[0]


@case(X, np.arange(4))
def integers_in_and_out(x, order):
    inner = jax.checkpoint(lambda x, order: (jnp.sin(x)[order], order + 1))
    y, order = inner(x, order)
    return jnp.cos(y)[order % 4], order


def products(policy):
    @functools.partial(jax.checkpoint, policy=policy)
    def function(x, w):
        for _ in range(2):
            x = jnp.sin(jnp.dot(x, w, precision=lax.Precision.HIGHEST))
        return jnp.sin(jnp.dot(x, w))

    return function


WHAT_A_POLICY_LEAVES = {
    "everything_saveable": {},
    "nothing_saveable": {"dot_general": 3, "sin": 2, "cos": 3},
    "dots_saveable": {"sin": 2, "cos": 3},
    "dots_with_no_batch_dims_saveable": {"sin": 2, "cos": 3},
}
for _name, _counts in WHAT_A_POLICY_LEAVES.items():
    CASES[_name] = Case(products(getattr(policies, _name)), (X, W), {})
    AGAIN[_name] = _counts


@again(sin=6, cos=9)
@case(X, normal(5, 3, 4, 4))
def products_saved_in_a_scan(x, ws):
    inner = products(policies.dots_saveable)
    return lax.scan(lambda x, w: (inner(x, w), None), x, ws)[0]


@again(dot_general=1, sin=1, cos=2)
@case(normal(6, 2, 3, 4), normal(7, 2, 4, 4))
def products_with_batches_are_not_saved(x, w):
    inner = jax.vmap(lambda x, w: jnp.sin(jnp.sin(x @ w)))
    return jax.checkpoint(inner, policy=policies.dots_with_no_batch_dims_saveable)(x, w)


@jax.custom_jvp
def own_sine(x):
    return jnp.sin(x)


@own_sine.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return own_sine(x), jnp.cos(x) * t


def own_sines(policy):
    @functools.partial(jax.checkpoint, policy=policy)
    def function(x):
        return own_sine(own_sine(x) * 2.0)

    return function


@again(sin=0, cos=2)
@case(X)
def custom_jvp_whose_sines_are_saved(x):
    """A policy is asked about the function with the rule, not about the sine inside."""
    return own_sines(lambda primitive, *_, **__: primitive.name == "custom_jvp_call")(x)


@again(sin=1, cos=2)
@case(X)
def custom_jvp_of_which_nothing_is_saved(x):
    return own_sines(policies.nothing_saveable)(x)


@jax.custom_vjp
def rooted(x):
    return jnp.sqrt(x)


rooted.defvjp(lambda x: (jnp.sqrt(x),) * 2, lambda root, ct: (ct / (2 * root),))


@again(sqrt=2)
@case(np.abs(X) + 1)
def custom_vjp_of_which_nothing_is_saved(x):
    return jax.checkpoint(lambda x: rooted(rooted(x)))(x)


def names(policy):
    @functools.partial(jax.checkpoint, policy=policy)
    def function(x):
        y = checkpoint_name(jnp.sin(x), "y")
        z = checkpoint_name(jnp.sin(y), "z")
        return jnp.sin(z)

    return function


OFFLOADED = {"offload_src": "device", "offload_dst": "pinned_host"}
BY_NAME = {
    "save_only_these_names": (policies.save_only_these_names("y", "z"), {"cos": 3}),
    "save_any_names_but_these": (policies.save_any_names_but_these("y"), {"sin": 1, "cos": 3}),
    "save_anything_except_these_names": (policies.save_anything_except_these_names("y", "z"), {}),
    "either_of_two_policies": (
        policies.save_from_both_policies(
            policies.save_only_these_names("y"),
            policies.save_only_these_names("z"),
        ),
        {"cos": 3},
    ),
    "offloaded_names": (
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["y"], names_which_can_be_offloaded=["z"], **OFFLOADED
        ),
        {"cos": 3},
    ),
    "all_offloaded": (
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["y", "z"], **OFFLOADED
        ),
        {"cos": 3},
    ),
}
for _name, (_policy, _counts) in BY_NAME.items():
    CASES[_name] = Case(names(_policy), (X,), {})
    AGAIN[_name] = _counts


@again(sin=2, cos=2)
@case(X, W)
def products_on_the_host(x, w):
    policy = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    return jax.checkpoint(lambda x: jnp.sin(jnp.sin(x @ w) @ w) @ w, policy=policy)(x)


@again(cos=6)
@case(normal(8, 3, 4))
def names_on_the_host_in_a_scan(xs):
    policy, _ = BY_NAME["all_offloaded"]
    inner = jax.checkpoint(
        lambda c, x: checkpoint_name(jnp.sin(checkpoint_name(jnp.sin(c + x), "y")), "z"), policy=policy
    )
    return lax.scan(lambda c, x: (inner(c, x), None), X, xs)[0]


@case(X, np.float32(0.5))
def one_branch_is_linear(x, y):
    return jax.checkpoint(lambda x, y: lax.cond(y > 0, jnp.sin, lambda x: 3 * x, x))(x, y)


@case(X, np.float32(0.5))
def branches_that_differ_in_what_they_need(x, y):
    inner = jax.checkpoint(
        lambda x, y: lax.cond(y > 0, lambda x, y: jnp.sin(x) * y, lambda x, y: jnp.exp(x) + y, x, y),
        policy=policies.dots_saveable,
    )
    return inner(x, y)


@case(X, np.int32(3))
def loop_before_a_derivative(x, n):
    def count(n):
        return lax.while_loop(lambda i: i < 2 * n, lambda i: i + 2, n)

    return jax.checkpoint(lambda x, n: jnp.sin(x) * count(n))(x, n)


@case(X)
def without_protection_from_cse(x):
    return jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), prevent_cse=False)(x)


@case((X, {"w": W, "none": None}))
def trees_in_and_out(tree):
    def inner(tree):
        x, inside = tree
        return {"y": (jnp.sin(x @ inside["w"]), None), "x": x}

    return jax.tree.reduce(operator.add, jax.checkpoint(inner)(tree))


INDEXED = "an array in device memory is indexed as such, also after one of its shape in host memory"
MARKS = {"names_on_the_host_in_a_scan": since("0.10", INDEXED)}


@pytest.mark.parametrize("name", sampled([pytest.param(name, marks=MARKS.get(name, ())) for name in CASES], 4))
def test_cases_from_jaxs_own_checkpoint_tests(name):
    case = CASES[name]
    passes = trace(case.function, *case.args)
    invariants.check(case, passes, transform=lambda f: f)
    invariants.assert_residuals_are_jax_saved_residuals(passes, *invariants.flattened(case))
    if name in AGAIN:
        watched = ("sin", "cos", "exp", "sqrt", "dot_general")
        counted = {p: sum(passes.backward.count(p, role) for role in "RD") for p in watched}
        assert counted == dict.fromkeys(watched, 0) | AGAIN[name]
    SideBySide(passes).html()

"""Calls that differ from the planned call: the planned function agrees with plain `f`, or refuses."""

import contextlib
import dataclasses
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax._src import config
from sampling import few, sampled
from uncompiled import by_operation
from zoo import normal

from rematscope import PlanError, auto, load_schedule, trace, with_schedule
from rematscope.scheduling.captured import captured
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, checkpointed
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.planned import Planned, scheduled_function
from rematscope.scheduling.schedule import schedule
from rematscope.tracing.signature import Signature

W, X = jnp.asarray(normal(950, 8, 8) / 3), jnp.asarray(normal(951, 16, 8))
MASK = X[:, 0] > 0


def net(w, x):
    for _ in range(2):
        x = jnp.sin(x @ w)
    return x


def with_a_schedule(f, *args, **kwargs):
    once = captured(f, args, kwargs)
    programs = schedule(linearize(trace(once, *args, **kwargs)), ())
    return Planned(once, Signature(f, args, kwargs), scheduled_function(once, programs, None))


def with_plain_checkpoints(f, *args, **kwargs):
    once = captured(f, args, kwargs)
    return Planned(once, Signature(f, args, kwargs), checkpointed(once, CheckpointPlacement(depth=0)))


# The results of auto and load_schedule, with any choice.
MAKES = {"a schedule": with_a_schedule, "plain checkpoints": with_plain_checkpoints}


@dataclasses.dataclass
class Case:
    """A call that differs from the planned one.

    Attributes:
      f: the function.
      before, now: positional arguments then and now.
      keywords, keywords_now: arguments by keyword then and now.
      around: what the call is made in.
    """

    f: object
    before: tuple
    now: tuple
    keywords: dict = dataclasses.field(default_factory=dict)
    keywords_now: dict | None = None
    around: object = contextlib.nullcontext


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["power"])
@dataclasses.dataclass
class Layer:
    w: jax.Array
    power: int


class Powers(eqx.Module):
    w: jax.Array
    power: int = eqx.field(static=True)
    act: object = eqx.field(static=True)


class Scaled(nnx.Module):
    def __init__(self, power):
        self.w = nnx.Param(W)
        self.power = power


class Aux:
    """A node of a pytree whose static part is a list."""

    def __init__(self, w, names):
        self.w, self.names = w, names


jax.tree_util.register_pytree_node(Aux, lambda a: ((a.w,), (a.names,)), lambda aux, children: Aux(*children, *aux))


def masked(w, x, first=None, second=None):
    h = net(w, x)
    h = h if first is None else h * first[:, None]
    return (h**2 if second is None else jnp.exp(h) * second[:, None]).sum()


def optional(params, x):
    h = net(params["w"], x)
    return (h + params["b"] if params.get("b") is not None else 2 * h).sum()


def powers(layer, x):
    return (net(layer.w, x) ** layer.power).sum()


def activated(layer, x):
    return layer.act(net(layer.w, x)).sum()


def promoted(w, x, scale):
    is_half = (x.astype(jnp.bfloat16) * scale).dtype == jnp.bfloat16
    return (net(w, x) * (2 if is_half else 3) * scale).sum()


def of_integers(w, x, n):
    return (net(w, x) * n / 3).sum() + jnp.sum(jnp.ones(3) * n)


def rest(w, *xs, **more):
    return sum(((i + 1) * net(w, x)).sum() for i, x in enumerate(xs)) + sum(
        (i + 3) * net(w, more[k]).sum() for i, k in enumerate(sorted(more))
    )


def dropped(w, x, key):
    return (net(w, x) * jax.random.bernoulli(key, 0.5, x.shape)).sum()


def keyed(w, x, seed):
    return (net(w, x) * jax.random.uniform(jax.random.key(jnp.arange(4)[seed]), x.shape)).sum()


def wide(w, x):
    return (net(w, x) * jnp.asarray(np.float64(0.1) + 1e-12)).sum() / 3


def multiplied(w, x):
    return (jnp.sin(x @ w) @ w).sum()


CASES = {
    "the optional argument is another one": Case(masked, (W, X, MASK, None), (W, X, None, MASK)),
    "an optional argument is left out": Case(masked, (W, X, MASK), (W, X)),
    "an optional argument is given by keyword": Case(masked, (W, X, MASK), (W, X), keywords_now={"second": MASK}),
    "another keyword": Case(masked, (W, X), (W, X), {"first": MASK}, {"second": MASK}),
    "a key of a dictionary is missing": Case(optional, ({"w": W, "b": X}, X), ({"w": W}, X)),
    "a key is None": Case(optional, ({"w": W, "b": X}, X), ({"w": W, "b": None}, X)),
    "a key that is not read": Case(optional, ({"w": W}, X), ({"w": W, "c": X}, X)),
    "a tuple in place of a list": Case(
        lambda ws, x: (net(ws[0], x) * (2 if isinstance(ws, list) else 3)).sum(), ([W], X), ((W,), X)
    ),
    "a static field of a dataclass": Case(powers, (Layer(W, 2), X), (Layer(W, 3), X)),
    "a static field of an Equinox module": Case(powers, (Powers(W, 2, None), X), (Powers(W, 3, None), X)),
    "a static activation": Case(activated, (Powers(W, 1, jnp.sin), X), (Powers(W, 1, jnp.exp), X)),
    "a static attribute of a module of nnx": Case(
        lambda m, x: (net(m.w[...], x) ** m.power).sum(), (Scaled(2), X), (Scaled(3), X)
    ),
    "static data of a node": Case(
        lambda a, x: (len(a.names) * net(a.w, x)).sum(), (Aux(W, ["a"]), X), (Aux(W, ["a", "b"]), X)
    ),
    "another shape": Case(lambda w, x: net(w, x).mean(), (W, X), (W, X[:5])),
    "half precision": Case(lambda w, x: net(w, x).sum().astype(jnp.float32), (W, X), (W, X.astype(jnp.bfloat16))),
    "a batch": Case(lambda w, x: net(w, x).mean(), (W, X), (W, X[None])),
    "a number in place of an array": Case(promoted, (W, X, jnp.float32(0.3)), (W, X, 0.3)),
    "an array in place of a number": Case(promoted, (W, X, 0.3), (W, X, jnp.float32(0.3))),
    "another number": Case(promoted, (W, X, 0.3), (W, X, 0.7)),
    "another integer": Case(of_integers, (W, X, 3), (W, X, 5)),
    "a float in place of an integer": Case(of_integers, (W, X, 3), (W, X, 3.5)),
    "a bool in place of an integer": Case(of_integers, (W, X, 3), (W, X, True)),
    "an integer of 8 bits": Case(of_integers, (W, X, 300), (W, X, np.int8(3))),
    "one argument more": Case(rest, (W, X), (W, X, X)),
    "other names of arguments": Case(rest, (W,), (W,), {"a": X, "b": 2 * X}, {"a": X, "c": 2 * X}),
    "by keyword in place of position": Case(masked, (W, X, MASK), (W,), keywords_now={"first": MASK, "x": X}),
    "another key": Case(dropped, (W, X, jax.random.key(0)), (W, X, jax.random.key(1))),
    "a key of another kind": Case(dropped, (W, X, jax.random.key(0)), (W, X, jax.random.key(0, impl="rbg"))),
    "a raw key": Case(dropped, (W, X, jax.random.key(0)), (W, X, jax.random.PRNGKey(0))),
    "numbers of 64 bits": Case(wide, (W, X), (W, X), around=lambda: jax.enable_x64(True)),
    "another precision": Case(multiplied, (W, X), (W, X), around=lambda: jax.default_matmul_precision("bfloat16")),
    "another range of random numbers": Case(
        lambda w, x, key: (jnp.tanh(x @ w) * jax.random.gumbel(key, x.shape)).sum(),
        (W, X, jax.random.key(0)),
        (W, X, jax.random.key(0)),
        around=lambda: config.use_high_dynamic_range_gumbel(True),
    ),
    "another kind of key by default": Case(keyed, (W, X, 3), (W, X, 3), around=lambda: jax.default_prng_impl("rbg")),
    "NumPy's arrays": Case(masked, (W, X), (np.asarray(W), np.asarray(2 * X))),
    "arrays of 64 bits of NumPy's": Case(masked, (W, X), (W, np.asarray(2 * X, np.float64))),
}


# The calls for which jax.jit does not retrace either.
UNCHANGED = {"another number", "another integer", "another key", "NumPy's arrays", "arrays of 64 bits of NumPy's"}


def value_and_gradients(f, args, kwargs):
    """Return the value, the gradients with respect to floats, and the derivative along ones."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    moving = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jax.typeof(leaf).dtype, jnp.inexact)]

    def of(*some):
        full = list(leaves)
        for i, x in zip(moving, some, strict=True):
            full[i] = x
        given, named = jax.tree.unflatten(tree, full)
        return f(*given, **named)

    def derivatives(*primals):
        value, gradients = jax.value_and_grad(of, tuple(range(len(moving))))(*primals)
        return of(*primals), value, gradients, jax.jvp(of, primals, tuple(map(jnp.ones_like, primals)))[1]

    return by_operation(derivatives)(*(leaves[i] for i in moving))


@functools.cache
def expected_of(name, now):
    """Return the same results of a case's plain function, for its earlier call or for the different call."""
    case = CASES[name]
    keywords = case.keywords_now if now and case.keywords_now is not None else case.keywords
    with case.around() if now else contextlib.nullcontext():
        return value_and_gradients(case.f, case.now if now else case.before, keywords)


def assert_same(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(getattr(other, "dtype", float), jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        if getattr(other, "dtype", None) != jax.dtypes.float0:
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def refuses(name, made):
    """Return whether it refuses the other call of a case; if not, it must do what the plain function does."""
    case = CASES[name]
    now = case.keywords if case.keywords_now is None else case.keywords_now
    with case.around():
        try:
            found = value_and_gradients(made, case.now, now)
        except PlanError as refusal:
            assert re.search(
                "planned for another call: |is for another function than .* with these arguments", str(refusal)
            )
            return True
        assert_same(found, expected_of(name, now=True))
        return False


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("name", sampled(list(CASES), 3))
def test_another_call_is_as_plain_f_or_refused(name, make):
    case = CASES[name]
    made = MAKES[make](case.f, *case.before, **case.keywords)
    assert_same(value_and_gradients(made, case.before, case.keywords), expected_of(name, now=False))
    assert refuses(name, made) == (name not in UNCHANGED)


@pytest.mark.parametrize("name", sampled(list(CASES), 3))
def test_a_function_that_is_planned_per_call_behaves_like_f(name):
    assert not refuses(name, with_schedule(CASES[name].f))


@pytest.mark.parametrize("name", ["the optional argument is another one", "a static field of a dataclass"])
def test_functions_from_auto_and_load_refuse_the_same_calls(name, tmp_path):
    case = CASES[name]
    found = auto(case.f, saved="1 KiB").plan(*case.before)
    found.save(tmp_path / "choice.json")
    for made in (found.function, load_schedule(tmp_path / "choice.json", case.f)):
        assert refuses(name, made)
        assert_same(value_and_gradients(made, case.before, {}), expected_of(name, now=False))


def with_more(w, x, y):
    """A loss, and results that derive to infinity at y = 0, in a loop too."""

    def turn(h, part):
        h = jnp.sin(h @ w) + part
        return h, jnp.sqrt(y * h[0, 0])

    h, roots = jax.lax.scan(turn, net(w, x), jnp.ones((3, 16, 8)))
    return (h**2).mean(), {"roots": roots, "root": jnp.sqrt(y) * h, "count": jnp.arange(3)}


AUXILIARY = {
    "the loss": lambda f: jax.value_and_grad(f, (0, 1, 2), has_aux=True),
    "in a batch": lambda f: jax.vmap(jax.grad(f, (0, 1), has_aux=True), (None, None, 0)),
    "what is returned beside it": lambda f: jax.grad(lambda *args: f(*args)[1]["root"].sum(), (0, 1)),
    "in forward mode": lambda f: lambda w, x, y: jax.jvp(lambda w: f(w, x, y), (w,), (w,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", few(AUXILIARY, 2))
def test_results_that_are_not_differentiated_make_no_gradient_nan(how):
    args = W, X, jnp.zeros(3 if how == "in a batch" else ())
    case = W, X, jnp.float32(0)
    expected = by_operation(AUXILIARY[how](with_more))(*args)
    for made in (with_a_schedule(with_more, *case), with_plain_checkpoints(with_more, *case), with_schedule(with_more)):
        found = by_operation(AUXILIARY[how](made))(*args)
        assert_same(found, expected)
        assert how != "the loss" or not np.isnan(found[1][0]).any()

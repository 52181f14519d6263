"""An answer that cannot have state is traced once; one that may have state is traced again."""

import dataclasses
import functools
import itertools
import operator
import random
import re
import time

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from grader.tracing.statefulness import may_be_stateful, may_have_rules

NAMES = ("a", "b")
SIZES = {"small": [2, 3]}
TABLE = jnp.arange(3.0)
PATTERN = re.compile("a|b")
policies = jax.checkpoint_policies


def helper(x, power=2):
    return checkpoint_name(jnp.sin(x) ** power, NAMES[0])


@jax.custom_vjp
def by_rule(x):
    return helper(x)


by_rule.defvjp(lambda x: (helper(x), x), lambda x, ct: (ct * jnp.cos(x),))


@functools.partial(jax.checkpoint, policy=policies.save_only_these_names(*NAMES))
def decorated(x):
    return helper(helper(x), power=3)


def in_a_loop(fs, k):
    parts = []
    for f in fs[: SIZES["small"][0]]:
        parts += [jax.checkpoint(f)]
    return lambda x: functools.reduce(lambda x, f: f(x), parts[:k], x)


def a_policy(primitive, *_, **parameters):
    return parameters.get("name") in NAMES


def a_policy_of_pattern(pattern):
    described = re.compile(pattern, re.ASCII).fullmatch
    return lambda primitive, *_, **parameters: primitive.name == "name" and described(parameters["name"]) is not None


class Scales:
    by = 2

    def __init__(self, width):
        self.width = width

    def scaled(self, x):
        return x * self.by


class Net(Scales):
    def __call__(self, x):
        return self.scaled(x)[: self.width]


@dataclasses.dataclass(frozen=True)
class Frozen:
    width: int = 7

    def __call__(self, x):
        return x[: self.width]


@pytest.mark.parametrize(
    "answer",
    [
        helper,
        Net(3),
        Net(3).scaled,
        Frozen(),
        lambda x: Net(x.size)(x),
        decorated,
        by_rule,
        jax.jit(helper),
        jax.checkpoint(helper, policy=a_policy),
        a_policy_of_pattern,
        lambda x: x * len(PATTERN.findall(re.sub("a+", lambda found: found[0], "ab"))),
        functools.partial(helper, power=4),
        lambda x: decorated(by_rule(x)) * TABLE * np.sqrt(np.float32(2)),
        lambda x: jax.lax.scan(lambda x, _: (helper(x), None), x, length=max(NAMES, key=len).count("a"))[0],
    ],
)
def test_a_function_that_reads_constants_and_changes_local_objects_is_stateless(answer):
    assert not may_be_stateful(answer)


def _counts(calls=itertools.count()):  # noqa: B008 (the mistake that is meant)
    return next(calls)


def _with_an_attribute(x):
    return x


_with_an_attribute.calls = 0
_seen, _log, _count = [], {}, 0
_numbers = iter(range(100))
_found = re.finditer("a", 100 * "a")


class Counts:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x


class CountsWhatThereIs:
    there_are = 0

    def __init__(self):
        CountsWhatThereIs.there_are += 1

    def __call__(self, x):
        return x * self.there_are


def _appends(x):
    _seen.append(x)
    return x * len(_seen)


def _stores(x):
    _log[x.shape] = True
    return x * len(_log)


def _adds_in_place(x):
    seen = _seen
    seen += [1]
    return x * len(seen)


def _assigns(x):
    global _count
    _count += 1
    return x * _count


def _gives_a_function_an_attribute(x):
    helper.last = x
    return x


def _imports(x):
    import random

    return x * random.random()


def _within():
    count = 0

    def answer(x):
        nonlocal count
        count += 1
        return x * count

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        _counts,
        _with_an_attribute,
        _appends,
        _stores,
        _adds_in_place,
        _assigns,
        _gives_a_function_an_attribute,
        _imports,
        _within(),
        Counts(),
        Counts().__call__,
        CountsWhatThereIs(),
        functools.cache(helper),
        functools.partial(lambda seen, x: (seen.append(x), x * len(seen))[1], []),
        lambda x: x * next(_numbers),
        lambda x: x * next(_found).start(),
        lambda x: x * len(re.copyreg.dispatch_table),
        lambda x: x * len(re._cache),
        lambda x: x * random.random(),
        lambda x: x * np.random.rand(),
        lambda x: x * time.time(),
        lambda x: x * len(globals()),
        lambda x: x * getattr(helper, "count", 1),
        lambda x: x * helper.__dict__.setdefault("count", 1),
        lambda x: jax.config.update("jax_enable_x64", True) or x,
        lambda x: x * np.random.default_rng().normal(),
        lambda x: jax.checkpoint(helper, policy=lambda *_, **__: _appends(TABLE).any())(x),
        jax.checkpoint(helper, policy=functools.partial(lambda seen, *_, **__: seen.append(1), [])),
        # Functions of libraries that change or read state.
        lambda x: operator.setitem(_log, x.shape, 1) or x * len(_log),
        lambda x: x * len(operator.iadd(_seen, [1])),
        lambda x: operator.methodcaller("append", 1)(_seen) or x * len(_seen),
        lambda x: operator.attrgetter("append")(_seen)(1) or x * len(_seen),
        lambda x: operator.attrgetter("__dict__")(helper).get("count", x),
        lambda x: x * len(functools.reduce(operator.iconcat, [[1]], _seen)),
        functools.partial(operator.setitem, _log),
        lambda x: x * len(np.seterr(over="warn")["over"]),
        lambda x: np.set_printoptions(precision=x.size) or x,
        lambda x: np.savetxt("kept", x) or x * np.loadtxt("kept"),
        lambda x: x * np.fromfile("kept"),
        lambda x: x * np.lib.format.open_memmap("kept")[0],
        lambda x: np.testing.measure("_seen.append(1)") * x * len(_seen),
        lambda x: x * np.empty(3)[0],
        lambda x: x * np.datetime64("now").astype(int),
        lambda x: x * len(jax.live_arrays()),
        lambda x: functools.update_wrapper(helper, by_rule)(x) * len(repr(helper)),
        lambda x: functools.wraps(by_rule)(helper)(x) * len(repr(helper)),
    ],
)
def test_a_function_that_may_differ_between_calls_may_be_stateful(answer):
    assert may_be_stateful(answer)


_RULES = {"by": by_rule}
_PRIMITIVE = jax.extend.core.Primitive("a primitive")


class Ruled:
    by = staticmethod(by_rule)


def with_inner_rules(x):
    @jax.custom_vjp
    def inner(x):
        return x

    inner.defvjp(lambda x: (2 * x, None), lambda _, ct: (ct,))
    return inner(x)


@pytest.mark.parametrize(
    "answer",
    [
        by_rule,
        lambda x: by_rule(x),
        jax.jit(by_rule),
        jax.checkpoint(by_rule),
        functools.partial(by_rule),
        lambda x: _RULES["by"](x),
        lambda x: Ruled.by(x),
        with_inner_rules,
        lambda x: functools.partial(jax.custom_jvp, nondiff_argnums=())(helper)(x),
        lambda x: jax.custom_gradient(lambda x: (x, lambda ct: ct))(x),
        lambda x: _PRIMITIVE.bind(x),
        lambda x: jax.custom_derivatives.custom_vjp(helper)(x),
        _counts,  # what may have state may have anything
    ],
)
def test_answers_with_custom_rules_are_recognized(answer):
    assert may_have_rules(answer)


@pytest.mark.parametrize("answer", [helper, Net(3), decorated, a_policy, lambda x: jax.nn.silu(jax.nn.relu(x))])
def test_a_librarys_rules_are_no_custom_rules(answer):
    assert not may_have_rules(answer)

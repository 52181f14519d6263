"""Custom rules with `symbolic_zeros=True` know what a call differentiates, but a plan is traced once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import SymbolicZero
from releases import since
from sampling import few
from zoo import normal

from rematscope import PlanError, auto, load_schedule, with_schedule
from rematscope.scheduling.captured import captured
from rematscope.scheduling.checkpoint_placement import CheckpointPlacement, checkpointed
from rematscope.scheduling.planned import Planned
from rematscope.tracing.signature import Signature

pytestmark = since("0.10", "a rule may return None for other arguments in its second trace")
W, X = normal(700, 4, 4), normal(701, 4, 4)
REFUSED = "a custom gradient in it may depend on that"


def product(factor_without_y, saves_x=True):
    """`sin(x) * y`, whose gradient of `x` has another factor if `y` is not differentiated."""

    @jax.custom_vjp
    def f(x, y):
        return jnp.sin(x) * y

    def forward(x, y):
        kept = x.value if y.perturbed or saves_x else None
        return f(x.value, y.value), (
            kept,
            jnp.cos(x.value) * y.value,
            None if y.perturbed or factor_without_y == 1 else factor_without_y,
        )

    def backward(kept, ct):
        x, slope, factor = kept
        return ct * slope * (1.0 if factor is None else factor), None if x is None else ct * jnp.sin(x)

    f.defvjp(forward, backward, symbolic_zeros=True)
    return f


def product_jvp(factor_without_y):
    """The same with a rule for forward mode."""

    @jax.custom_jvp
    def f(x, y):
        return jnp.sin(x) * y

    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        dot = 0 if isinstance(dx, SymbolicZero) else jnp.cos(x) * y * dx
        if isinstance(dy, SymbolicZero):
            return f(x, y), dot * factor_without_y if factor_without_y != 1 else dot
        return f(x, y), dot + jnp.sin(x) * dy

    f.defjvp(rule, symbolic_zeros=True)
    return f


def pair(factor_without_second):
    """`(sin(x), cos(y))`, whose gradient of `x` has another factor if only the first result has a cotangent."""

    @jax.custom_vjp
    def f(x, y):
        return jnp.sin(x), jnp.cos(y)

    def backward(kept, cts):
        (x, y), (first, second) = kept, cts
        of_x = None if isinstance(first, SymbolicZero) else first * jnp.cos(x)
        if isinstance(second, SymbolicZero):
            return of_x if of_x is None or factor_without_second == 1 else of_x * factor_without_second, None
        return of_x, -second * jnp.sin(y)

    f.defvjp(lambda x, y: (f(x.value, y.value), (x.value, y.value)), backward, symbolic_zeros=True)
    return f


def pair_called_by_a_rule(factor_without_second):
    """The same, called by a rule without symbolic zeros."""
    inner = pair(factor_without_second)

    @jax.custom_jvp
    def f(x, y):
        return jnp.sin(x), jnp.cos(y)

    f.defjvp(lambda primals, tangents: jax.jvp(inner, primals, tangents))
    return f


def once(f):
    return lambda w, x: jnp.sum(jnp.tanh(f(jnp.tanh(w @ w), jnp.sin(x @ x))) ** 2)


def in_a_loop(f):
    return lambda w, x: jnp.sum(lax.scan(lambda c, _: (jnp.tanh(f(c @ w, x)), None), x, length=3)[0])


def in_a_jit(f):
    return lambda w, x: jnp.sum(jax.jit(lambda w, x: jnp.tanh(f(w @ x, x)))(w, x))


def planned(plan, f, *args):
    match plan:
        case "everything saved":
            return auto(f, peak="1 MiB")
        case "little saved":
            return auto(f, saved="192 B")
        case "checkpoints":
            once = captured(f, args, {})
            return Planned(once, Signature(f, args, {}), checkpointed(once, CheckpointPlacement(depth=0)))
        case "with_schedule":
            return with_schedule(f)


PLANS = ["everything saved", "little saved", "checkpoints", "with_schedule"]
RULES = {"vjp": product, "vjp of another pytree": functools.partial(product, saves_x=False), "jvp": product_jvp}


def assert_close(got, wanted):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, wanted)


def gradient_or_refusal(made, f, argnums, *args, has_aux=False):
    """Assert that a gradient is JAX's if it is not refused, and return whether it is refused."""
    try:
        got = jax.grad(made, argnums, has_aux=has_aux)(*args)
    except PlanError as error:
        assert REFUSED in str(error)
        return True
    assert_close(got, jax.grad(f, argnums, has_aux=has_aux)(*args))
    return False


@pytest.mark.parametrize("plan", few(PLANS))
@pytest.mark.parametrize("program", few([in_a_loop, in_a_jit, once]))
@pytest.mark.parametrize("rule", few(RULES))
def test_a_rule_that_only_skips_work_has_jaxs_gradient_in_any_order_of_calls(rule, program, plan):
    f = program(RULES[rule](1.0))
    made = planned(plan, f, W, X)
    for argnums in (0, (0, 1), 1, 0, (0, 1), 1):
        assert not gradient_or_refusal(made, f, argnums, W, X)
    if rule == "jvp":
        dots = (X, jnp.zeros_like(X))
        assert_close(jax.jvp(made, (W, X), dots)[1], jax.jvp(f, (W, X), dots)[1])
        assert_close(jax.hessian(made)(W, X), jax.hessian(f)(W, X))
    assert_close(jax.jit(jax.grad(made))(W, X), jax.grad(f)(W, X))


@pytest.mark.parametrize("plan", few(PLANS))
@pytest.mark.parametrize("rule", few(RULES))
def test_another_gradient_of_a_rule_is_jaxs_or_refused(rule, plan):
    f = in_a_loop(RULES[rule](2.0))
    made = planned(plan, f, W, X)
    refused = [gradient_or_refusal(made, f, argnums, W, X) for argnums in (0, (0, 1), 1, 0)]
    of_w, of_both, _, of_w_again = refused  # before JAX 0.11, the gradient of x alone is refused too
    assert (of_w, of_both, of_w_again) == ((False,) * 3 if plan == "checkpoints" else (True, False, True))

    def stopped(w, x):
        return f(w, lax.stop_gradient(x))

    assert not gradient_or_refusal(planned(plan, stopped, W, X), stopped, 0, W, X)


def test_argnums_plan_for_the_arguments_that_are_differentiated(tmp_path):
    f = once(product(2.0))
    made = auto(f, peak="1 MiB", argnums=0)
    made.plan(W, X).save(tmp_path / "plan.json")
    for each in (made, load_schedule(tmp_path / "plan.json", f)):
        assert not gradient_or_refusal(each, f, 0, W, X)


@pytest.mark.parametrize("inside", [pair, pair_called_by_a_rule])
@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize("plan", few(["everything saved", "with_schedule"]))
def test_outputs_without_a_cotangent(inside, factor, plan):
    rule = inside(factor)

    def f(w):
        first, second = rule(jnp.tanh(w @ w), jnp.sin(w @ w))
        return jnp.sum(first**2), (second, jnp.argmax(second), first > 0)

    def stopped(w):
        loss, auxiliary = f(w)
        return loss, lax.stop_gradient(auxiliary)

    made = planned(plan, f, W)
    assert gradient_or_refusal(made, f, 0, W, has_aux=True) == (factor != 1)
    no_cotangents = np.zeros((), jax.dtypes.float0), np.zeros(X.shape, jax.dtypes.float0)
    assert_close(*(jax.vjp(g, W)[1]((jnp.float32(1.0), (X, *no_cotangents)))[0] for g in (made, f)))
    assert not gradient_or_refusal(planned(plan, stopped, W), stopped, 0, W, has_aux=True)

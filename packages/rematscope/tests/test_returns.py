"""Every public function returns on loops that move, permute, swap or pass through what they carry."""

import contextlib
import random
import signal

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from sampling import few

from rematscope import compare, fit, frontier, lint, liveness, measure, plan, print_fwd_bwd, recompute_graph, trace
from rematscope.choices.build import recompute_cost_of
from rematscope.render.view import plain_text

X = jax.ShapeDtypeStruct((4, 4), jnp.float32)
MOVES = [
    lambda w: w,
    lambda w: w.T,
    lambda w: w[::-1],
    lambda w: w.astype(jnp.float16).astype(jnp.float32),
    lax.stop_gradient,
    lambda w: w.reshape(16).reshape(4, 4),
    lambda w: jnp.squeeze(w[None], 0),
    lambda w: checkpoint_name(w, "moved"),
    lambda w: lax.optimization_barrier(w),
    lambda w: w + 1.0,  # no move, but as good to save as its operand
]
MIXES = [lambda a, b: a @ b, lambda a, b: jnp.tanh(a) * b, lambda a, b: a + b, lambda a, b: jax.nn.softmax(a @ b)]
CALLS = {
    "trace": lambda f, *args: trace(f, *args).residuals,
    "lint": lambda f, *args: plain_text(lint(f, *args)),
    "plan": lambda f, *args: plain_text(plan(f, *args, saved=0.5)),
    "frontier": lambda f, *args: plain_text(frontier(f, *args)),
    "compare": lambda f, *args: plain_text(compare({"f": f, "checkpoint": jax.checkpoint(f)}, *args)),
    "liveness": lambda f, *args: plain_text(liveness(f, *args)),
    "print_fwd_bwd": lambda f, *args: plain_text(print_fwd_bwd(f, *args)),
}
COMPILING = {
    "measure": lambda f, *args: plain_text(measure(f, *args)),
    "fit": lambda f, *args: plain_text(fit(f, *args, peak="1 MiB")),
}


@contextlib.contextmanager
def at_most(seconds):
    def stop(*_):
        raise TimeoutError(f"no result after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def scanned(body):
    return lambda w: lax.scan(lambda w, _: (body(w), None), w, None, length=3)[0]


def looped(body):
    return lambda w: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, body(c[1])), (0, lax.stop_gradient(w)))[1]


def swapped(body):
    return lambda w: lax.scan(lambda c, _: ((body(c[1]), c[0]), None), (w, w + 1.0), None, length=3)[0][0]


LOOPS = {"scan": scanned, "while": looped, "swap": swapped, "nested": lambda body: scanned(scanned(body))}


@pytest.mark.parametrize("loop", few(LOOPS))
@pytest.mark.parametrize("move", few(range(len(MOVES)), 3))
def test_a_carry_that_is_only_moved_has_an_end(move, loop):
    moved = LOOPS[loop](MOVES[move])
    with at_most(30):
        for call in (CALLS["lint"], CALLS["plan"]):
            assert call(lambda x, w: jnp.sum(jax.nn.softmax(x @ moved(w))), X, X)


@pytest.mark.slow
@pytest.mark.parametrize("number", few(range(16), 1))
def test_every_public_function_returns(number):
    draw = random.Random(number)
    count = draw.randint(1, 3)
    run = program(draw, 2, count)

    def f(*args):
        return sum(jnp.sum(jnp.sin(x)) for x in run(list(args)))

    calls = CALLS | (COMPILING if number < 4 else {})
    for name, call in calls.items():
        with at_most(120):
            assert call(f, *[X] * count) is not None, name


@pytest.mark.parametrize("number", few(range(100, 112), 2))
def test_programs_compute_jaxs_gradient_and_graphs_count_their_flops(number):
    """Dead carries and results are dropped from loops and branches, and nothing else."""
    draw = random.Random(number)
    count = draw.randint(1, 3)
    run = program(draw, 2, count)

    def f(*args):
        return sum(jnp.sum(jnp.sin(x)) for x in run(list(args)))

    args = [jnp.full((4, 4), 0.1 + i) for i in range(count)]
    passes = trace(f, *args)
    residuals = passes.forward(*args)[len(passes.outputs) :]
    gradients = passes.backward(*residuals, jnp.float32(1))
    for ours, jaxs in zip(gradients, jax.grad(f, tuple(range(count)))(*args), strict=True):
        assert jnp.allclose(ours, jaxs, rtol=1e-4, atol=1e-5, equal_nan=True)
    graph = recompute_graph(f, *args)
    kept = graph.trace.device_bytes_by_kind().get("computed", 0)
    assert graph.evaluate(()) == (kept, recompute_cost_of(graph.trace))


def program(draw, depth, count):
    """Draw a function from `count` arrays to as many: moves, permutations and matmuls, in loops and branches."""
    kinds = ["move", "move", "permute", "mix"] + ["scan", "while", "cond", "checkpoint", "jit"] * (depth > 0)
    steps = [step(draw, draw.choice(kinds), depth, count) for _ in range(draw.randint(1, 3))]

    def run(values):
        for each in steps:
            values = each(values)
        return values

    return run


def step(draw, kind, depth, count):
    at, other = draw.randrange(count), draw.randrange(count)
    if kind in ("move", "mix"):
        move, mix = draw.choice(MOVES), draw.choice(MIXES)
        changed = (lambda v: move(v[at])) if kind == "move" else (lambda v: mix(v[at], v[other]))
        return lambda v: [changed(v) if i == at else x for i, x in enumerate(v)]
    if kind == "permute":
        order = draw.sample(range(count), count)
        return lambda v: [v[i] for i in order]
    inner, length = program(draw, depth - 1, count), draw.randint(0, 3)

    def once(*values):
        return tuple(inner(list(values)))

    if kind == "scan":
        reverse = draw.random() < 0.3

        def body(carry, _):
            return (carry := once(*carry)), carry[at]

        return lambda v: list(lax.scan(body, tuple(v), None, length=length, reverse=reverse)[0])
    if kind == "while":  # which has no derivative in reverse: of constants

        def loop(v):
            start = (0, *map(lax.stop_gradient, v))
            _, *found = lax.while_loop(lambda c: c[0] < length, lambda c: (c[0] + 1, *once(*c[1:])), start)
            return [lax.stop_gradient(x) if i == at else y for i, (x, y) in enumerate(zip(found, v, strict=True))]

        return loop
    if kind == "cond":
        branch = program(draw, 0, count)
        return lambda v: list(lax.cond(v[0].sum() > 0, once, lambda *a: tuple(branch(list(a))), *v))
    return lambda v: list((jax.checkpoint if kind == "checkpoint" else jax.jit)(once)(*v))

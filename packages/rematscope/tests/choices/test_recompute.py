"""What a choice of names keeps and computes again, predicted from one trace, against traces with that choice made."""

import functools
import itertools
import os
import random

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import BLOCKS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name as name
from operations import BINARY, UNARY

from rematscope import cost_of, recompute_graph, trace
from rematscope.ir import jax_internals
from rematscope.ir.program import nbytes

REMAT3 = jax_internals.remat3()
EXAMPLES = os.environ.get("REMATSCOPE_EXAMPLES")


def saving(names):
    return functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*names))


def measured(f, args):
    """(bytes of computed residuals, FLOPs and transcendentals computed again), as a trace shows them."""
    passes = trace(f, *args)
    again = [(e, times) for e, times in passes.backward.walk() if e.role == "R"]
    work = sum((cost_of(e).flops + cost_of(e).transcendentals) * times for e, times in again)
    if not any(e.primitive == "cond" for e in everything(passes.backward)):  # of branches the costliest counts there
        assert work == passes.recompute_cost.flops + passes.recompute_cost.transcendentals
    return passes.bytes_by_kind().get("computed", 0), work


def everything(program):
    for equation in program.equations:
        yield equation
        for body in equation.bodies:
            yield from everything(body)


def bytes_of_vjp(f, args):
    """Bytes of the leaves of `jax.vjp`'s pullback that are no argument and no constant."""
    leaves, tree = jax.tree.flatten(args)

    def pullback(*leaves):
        return jax.tree.leaves(jax.vjp(f, *jax.tree.unflatten(tree, leaves))[1])

    jaxpr = jax.make_jaxpr(pullback)(*leaves).jaxpr
    same = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "reduce_precision":
            # A checkpoint rounds what it saves to the precision that it has. Other parts may read it unrounded.
            same[eqn.outvars[0]] = same.get(eqn.invars[0], eqn.invars[0])
        elif (called := jax_internals.called_body(eqn)) is not None:
            inner = jax_internals.body_of(called)[0]
            handed = dict(zip(inner.invars, eqn.invars, strict=True))
            for out, v in zip(eqn.outvars, inner.outvars, strict=True):
                if v in handed:
                    same[out] = same.get(handed[v], handed[v])
    kept = {same.get(v, v) for v in jaxpr.outvars if not jax_internals.is_literal(v)}
    return sum(nbytes(v.aval) for v in kept - {*jaxpr.invars, *jaxpr.constvars})


def names_in(jaxpr):
    """Every name in a program, those in loops, branches and checkpoints included."""
    for eqn in jax_internals.body_of(jaxpr)[0].eqns:
        if (found := jax_internals.checkpoint_name(eqn)) is not None:
            yield found
        for body in jax_internals.bodies(eqn):
            yield from names_in(body)


def names_of(make, args):
    return list(dict.fromkeys(names_in(jax.make_jaxpr(lambda *args: jax.vjp(make(saving(())), *args))(*args))))


def subsets(names, most, seed=0):
    """All subsets if there are no more than `most`; else none, all, and a sample."""
    if 2 ** len(names) <= most:
        return [s for size in range(len(names) + 1) for s in itertools.combinations(names, size)]
    rng = random.Random(seed)
    drawn = [tuple(n for n in names if rng.random() < share) for share in rng.choices((0.2, 0.5, 0.8), k=most - 2)]
    return [(), tuple(names), *drawn]


def assert_predicted(make, args, most=16, seed=0):
    """`make(checkpoint)` is the function whose checkpoints are made by `checkpoint`."""
    graph = recompute_graph(make(saving(())), *args)
    for chosen in subsets([n for n in names_of(make, args) if n not in graph.barred], most, seed):
        f = make(saving(chosen))
        real = measured(f, args)
        assert graph.evaluate(chosen) == real, chosen
        assert bytes_of_vjp(f, args) == real[0], chosen
    return graph


# Little functions. Each is given `checkpoint`, and puts it where it likes.

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
X, W, WS = F32((8, 4)), F32((4, 4)), F32((3, 4, 4))
LITTLE: dict = {}


def little(*args, names):
    """Adds the decorated function to those that are tried. `names`: those that some choice can save."""

    def add(make):
        LITTLE[make.__name__] = make, args, tuple(names.split())
        return make

    return add


def layer(x, w):
    b = jnp.sin(name(x @ w, "a"))
    return jnp.sin(name(b @ w.T, "c")), None


@little(X, WS, names="a c")
def scan_of_checkpoint(checkpoint):
    return lambda x, ws: lax.scan(checkpoint(layer), x, ws)[0]


@little(X, WS, names="a c")
def checkpoint_of_scan(checkpoint):
    return checkpoint(lambda x, ws: lax.scan(layer, x, ws)[0])


@little(X, WS, names="a c")
def reverse_scan_of_checkpoint(checkpoint):
    def f(x, ws):
        x, ys = lax.scan(checkpoint(lambda x, w: (layer(x, w)[0], name(jnp.exp(x), "y"))), x, ws, reverse=True)
        return jnp.sin(x).sum() + jnp.sin(ys).sum()

    return f


@little(X, WS, names="a c")
def unrolled_checkpoints(checkpoint):
    def f(x, ws):
        for i in range(3):
            x, _ = checkpoint(layer)(x, ws[i])
        return x

    return f


@little(X, WS, names="a c")
def nested_scans(checkpoint):
    return checkpoint(lambda x, ws: lax.scan(lambda x, _: (lax.scan(layer, x, ws)[0], None), x, length=2)[0])


@little(X, WS, names="a c")
def nested_checkpoints(checkpoint):
    return checkpoint(lambda x, ws: lax.scan(checkpoint(layer), x, ws)[0])


@little(X, W, WS, names="k m h")
def values_that_do_not_change_in_a_loop(checkpoint):
    def f(x, w, ws):
        def body(h, w_i):
            k, m = name(jnp.sin(w @ w), "k"), name(jnp.tanh(w_i @ w_i), "m")
            h = name(jnp.sin(h @ k @ m), "h")
            return h, jnp.exp(h).sum()

        return lax.scan(body, x, ws)[1]

    return checkpoint(f)


@little(X, WS, names="u v")
def carries_that_need_each_other(checkpoint):
    def f(x, ws):
        def body(pair, w):
            a, b = pair
            return (name(jnp.sin(b @ w), "u"), name(jnp.tanh(a * b), "v")), None

        (a, b), _ = lax.scan(body, (x, 2 * x), ws)
        return a * b

    return checkpoint(f)


@little(X, W, names="a")
def fori_loop(checkpoint):
    return checkpoint(lambda x, w: lax.fori_loop(0, 3, lambda i, h: jnp.sin(name(h @ w, "a")), x))


@little(X, W, names="out z")
def named_outputs_that_another_checkpoint_reads(checkpoint):
    @checkpoint
    def part(x, w):
        y = name(jnp.sin(x @ w), "out")
        z = name(jnp.exp(y), "z")
        return z, jnp.sum(z * jnp.cos(y))

    def f(x, w):
        z, a = part(x, w)
        z, b = part(z, w)
        return z.sum() + a + b

    return f


@little(X, W, names="in")
def a_checkpoint_whose_input_is_needed_only_without_its_name(checkpoint):
    def f(x, w):
        part = checkpoint(lambda h: jnp.sin(name(2 * h, "in") @ w))
        return part(jnp.cos(x @ w))

    return f


@little(X, W, names="a b")
def a_checkpoint_and_a_name_beside_it(checkpoint):
    def f(x, w):
        part = checkpoint(lambda x: name(jnp.sin(name(x @ w, "a")), "b") @ w)
        return part(x) * jnp.exp(name(x, "beside"))

    return f


@little(X, X, X, W, names="q k logits p v")
def attention(checkpoint):
    def f(q, k, v, w):
        logits = name(name(q @ w, "q") @ name(k @ w, "k").T, "logits")
        return name(jax.nn.softmax(logits), "p") @ name(v @ w, "v")

    return checkpoint(f)


@little(X, W, names="s inner")
def custom_vjp_with_a_name(checkpoint):
    @jax.custom_vjp
    def sine(x, w):
        return jnp.sin(x @ w)

    def forward(x, w):
        a = name(x @ w, "inner")
        return jnp.sin(a), (a, x, w)

    def backward(saved, ct):
        a, x, w = saved
        return ct * jnp.cos(a) @ w.T, x.T @ (ct * jnp.cos(a))

    sine.defvjp(forward, backward)
    return checkpoint(lambda x, w: jnp.sin(sine(name(jnp.sin(x), "s"), w)))


@little(X, W, names="b a")
def jit_inside(checkpoint):
    inner = jax.jit(lambda x, w: jnp.sin(name(x @ w, "a")))
    return checkpoint(lambda x, w: inner(name(jnp.sin(x), "b"), w))


@little(X, WS, names="a b")
def vmap_of_checkpoint(checkpoint):
    part = checkpoint(lambda x, w: jnp.sin(name(jnp.sin(name(x @ w, "a")), "b") @ w))
    return lambda x, ws: jax.vmap(part, (None, 0))(x, ws)


@little(X, W, names="relu silu lse")
def activations(checkpoint):
    def f(x, w):
        y = jax.nn.relu(name(x @ w, "relu")) @ w
        y = jax.nn.silu(name(y @ w, "silu"))
        return jax.nn.logsumexp(name(y @ w, "lse"), axis=-1)

    return checkpoint(f)


@little(X, W, names="a b")
def a_value_with_two_names(checkpoint):
    return checkpoint(lambda x, w: jnp.sin(name(name(name(x @ w, "a"), "a"), "b") @ w))


@little(X, W, names="a b")
def a_name_on_equal_values(checkpoint):
    def f(x, w):
        one, other = name(jnp.sin(x @ w), "a"), name(jnp.sin(x @ w), "a")
        return jnp.sin(one @ w) + jnp.cos(other @ w) + jnp.tanh(name(jnp.sin(x @ w), "b") @ w)

    return checkpoint(f)


TABLE = np.arange(4, dtype=np.float32)


@little(X, W, names="x w table half y z")
def names_on_arguments_constants_and_outputs(checkpoint):
    def f(x, w):
        x, w, table, half = name(x, "x"), name(w, "w"), name(jnp.asarray(TABLE), "table"), name(np.float32(0.5), "half")
        y = name(jnp.sin(half * x @ w), "y")
        z = name(jnp.exp(y * table), "z")
        return name(x, "same"), y, z, jnp.sin(z @ w)

    return checkpoint(f)


@little(X, W, names="y t")
def names_that_only_linear_operations_read(checkpoint):
    def f(x, w):
        y = name(x @ w, "y")
        name(jnp.cos(x), "discarded")
        return name(name(y.T, "t") @ y, "linear").sum() + name(2 * x, "last").sum()

    return checkpoint(f)


@little(X, W, F32((0, 4)), F32((0, 4)), names="empty y")
def no_bytes(checkpoint):
    return checkpoint(lambda x, w, e, d: (jnp.sin(name(jnp.sin(e), "empty") * d), jnp.sin(name(x @ w, "y") @ w)))


@little(X, W, jax.ShapeDtypeStruct((3,), np.int32), names="order y next t")
def whole_numbers(checkpoint):
    def f(x, w, i):
        order = name(jnp.argsort(lax.stop_gradient(x @ w).sum(0)), "order")
        y = name(x @ w, "y")[:, order]
        return jnp.sin(name(jnp.sin(y)[name(i + 1, "next")], "t") @ w)

    return checkpoint(f)


@little(X, W, jax.eval_shape(lambda: jax.random.key(0)), names="key kept noise dropped")
def random_numbers(checkpoint):
    def f(x, w, key):
        one, other = jax.random.split(key)
        kept = name(jax.random.bernoulli(name(one, "key"), 0.5, x.shape), "kept")
        noise = name(jax.random.normal(other, x.shape), "noise")
        return jnp.sin(name(jnp.where(kept, jnp.sin(x @ w), 0), "dropped") * noise)

    return checkpoint(f)


@little(X, W, names="start a factor")
def while_loop_beside(checkpoint):
    def f(x, w):
        start = lax.stop_gradient(name(jnp.abs(x @ w) + 1, "start"))
        factor = lax.while_loop(lambda s: s.sum() < 100, lambda s: name(s * 2, "doubled"), start)
        return jnp.sin(name(x @ w, "a") * name(jnp.sin(factor), "factor"))

    return checkpoint(f)


@little(X, W, names="y printed z")
def prints(checkpoint):
    def f(x, w):
        y = name(jnp.sin(x @ w), "y")
        jax.debug.print("{}", name(y * 2, "printed").sum())
        return jnp.sin(name(jnp.sin(y @ w), "z"))

    return checkpoint(f)


@little(X, W, names="h g")
def a_gradient_inside(checkpoint):
    def f(x, w):
        gradient = jax.grad(lambda x: jnp.sin(name(jnp.tanh(name(x @ w, "h")), "g") @ w).sum())
        return jnp.sin(gradient(x))

    return checkpoint(f)


@pytest.mark.parametrize("which", list(LITTLE))
def test_every_choice_is_predicted(which):
    if REMAT3 and which == "values_that_do_not_change_in_a_loop":
        pytest.skip("remat3 saves them once an iteration")
    make, args, names = LITTLE[which]
    assert assert_predicted(make, args, most=4 if REMAT3 else 16).names == names


# Real blocks: a sample of their choices. All of them, hours of them:
#     REMATSCOPE_SUBSETS=all pytest -n 6 --dist load tests/rematscope/test_recompute.py -k block


@pytest.mark.skipif(REMAT3, reason="choices are predicted without it")
@pytest.mark.parametrize("which", BLOCKS)
def test_a_block(which):
    block = BLOCKS[which]
    most = 2**16 if os.environ.get("REMATSCOPE_SUBSETS") == "all" else 12
    graph = assert_predicted(lambda checkpoint: checkpoint(block.function), block.args, most)
    assert 12 <= len(graph.names) <= 16 and not graph.barred


def test_the_leaves_of_a_real_pullback():
    """What crosses when a function is run, and not only traced: each array once, however often it is handed over."""
    make, shapes, names = LITTLE["attention"]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s.shape), s.dtype) for s in shapes]
    given = {id(a) for a in args}
    graph = recompute_graph(make(saving(())), *args)
    for chosen in ((), ("logits",), names):
        _, pullback = jax.vjp(make(saving(chosen)), *args)
        kept = {id(a): a for a in jax.tree.leaves(pullback) if id(a) not in given}
        assert sum(a.nbytes for a in kept.values()) == graph.evaluate(chosen)[0]


# Names that JAX could keep, but not so that the bytes of one are its own.


@little(X, W, names="y z")
def branches(checkpoint):
    def f(x, w):
        y = jnp.sin(name(x @ w, "y"))
        z = lax.cond(x.sum() > 0, lambda y: jnp.sin(name(jnp.sin(y) @ w, "one")), lambda y: name(y @ w, "other"), y)
        return jnp.sin(name(z, "z"))

    return checkpoint(f)


@little(X, WS, names="h")
def branches_in_a_loop(checkpoint):
    def body(h, at):
        w, i = at
        ways = [lambda h: jnp.sin(name(h @ w, "one")), lambda h: jnp.tanh(name(h @ w, "other")), lambda h: h]
        return lax.switch(i, ways, name(h * 2, "h")), None

    return lambda x, ws: lax.scan(checkpoint(body), x, (ws, jnp.arange(3)))[0]


@little(jax.ShapeDtypeStruct((4,), np.complex64), names="size")
def complex_numbers(checkpoint):
    return checkpoint(lambda z: jnp.sin(name(jnp.abs(name(jnp.exp(z), "complex")), "size")))


@little(X, W, names="s")
def a_checkpoint_in_a_custom_rule(checkpoint):
    def part(x, w):
        return jnp.sin(name(jnp.sin(x @ w), "inner") @ w)

    rule = jax.custom_vjp(part)
    rule.defvjp(lambda x, w: jax.vjp(jax.checkpoint(part), x, w), lambda pullback, ct: pullback(ct))
    return checkpoint(lambda x, w: jnp.sin(rule(name(jnp.sin(x), "s"), w)))


@little(X, W, names="s rule")
def custom_jvp_with_a_name(checkpoint):
    @jax.custom_jvp
    def softplus(x):
        return jnp.log1p(jnp.exp(name(jnp.sin(x), "hidden")))

    softplus.defjvps(lambda t, out, x: t * jax.nn.sigmoid(name(jnp.sin(x), "rule")) * jnp.cos(x))
    return checkpoint(lambda x, w: jnp.sin(softplus(name(jnp.sin(x), "s") @ w)))


BARRED = {
    "branches": {"one": "branch", "other": "branch"},
    "branches_in_a_loop": {"one": "branch", "other": "branch"},
    "complex_numbers": {"complex": "complex"},
    "a_checkpoint_in_a_custom_rule": {"inner": "custom rule"},
    "custom_jvp_with_a_name": {"hidden": "a rule of its own"},
}


@pytest.mark.parametrize("which", BARRED)
def test_names_that_cannot_be_kept_apart_are_not_offered(which):
    make, args, names = LITTLE[which]
    graph = assert_predicted(make, args, most=4)
    assert graph.names == names
    assert graph.barred.keys() == BARRED[which].keys()
    assert all(reason in graph.barred[name] for name, reason in BARRED[which].items())


def test_what_a_branch_saved_is_known_in_the_branch_of_the_backward_pass():
    """Saving what the first branch made spares one product of one branch; before, all others were called late."""
    make, args, _ = LITTLE["branches_in_a_loop"]
    (_, nothing_saved), (_, one_saved) = (measured(make(saving(names)), args) for names in ((), ("one",)))
    assert nothing_saved - one_saved == 3 * 2 * 8 * 4 * 4


# Functions that nobody thought of.

steps_that_hold_none = st.one_of(
    st.tuples(st.sampled_from(sorted(UNARY))),
    st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 3)),
    st.tuples(st.just("dot")),
    st.tuples(st.just("name"), st.sampled_from("abcd")),
)


def steps_that_hold(step):
    steps = st.lists(step, min_size=2, max_size=4)
    return st.one_of(
        st.tuples(st.just("checkpoint"), steps),
        st.tuples(st.just("scan"), st.booleans(), steps),
        st.tuples(st.just("carries"), steps, steps),
        st.tuples(st.just("cond"), steps, steps),
        st.tuples(st.just("jit"), steps),
        st.tuples(st.just("vmap"), steps),
    )


functions = st.lists(st.recursive(steps_that_hold_none, steps_that_hold, max_leaves=12), min_size=2, max_size=6)


def run(steps, checkpoint, w, x, beside=()):
    """Applies `steps` one after the other; each reads what any before it made."""
    made = [*beside, x]
    for step in steps:
        made.append(apply(step, checkpoint, w, made))
    return made[-1]


def apply(step, checkpoint, w, made):
    x = made[-1]
    match step:
        case ("dot",):
            return w @ x
        case ("name", which):
            return name(x, which)
        case ("jit", steps):
            return jax.jit(lambda w, x: run(steps, checkpoint, w, x, made))(w, x)
        case ("vmap", steps):
            return jax.vmap(lambda x: run(steps, checkpoint, w, x, made))(jnp.stack([x, made[0]])).sum(0)
        case ("checkpoint", steps):
            return checkpoint(lambda w, x: run(steps, checkpoint, w, x, made))(w, x)
        case ("scan", reverse, steps):
            xs = jnp.stack([x, made[0]])
            x, ys = lax.scan(lambda c, x: (run(steps, checkpoint, w, c, [x]), c * x), x, xs, reverse=reverse)
            return x + ys[0]
        case ("carries", first, second):

            def both(c, _):
                return (run(first, checkpoint, w, c[0], [c[1]]), run(second, checkpoint, w, c[1])), None

            return sum(lax.scan(both, (x, x), length=3)[0])
        case ("cond", first, second):
            positive = jnp.sum(lax.stop_gradient(made[0])) > 0
            return lax.cond(
                positive, lambda x: run(first, checkpoint, w, x), lambda x: run(second, checkpoint, w, x), x
            )
        case (which, i):
            return BINARY[which](x, made[i % len(made)])
        case (which,):
            return UNARY[which](x)


@pytest.mark.skipif(REMAT3, reason="the choice is predicted without it")
@given(functions, st.integers(0, 99))
@settings(
    deadline=None,
    derandomize=EXAMPLES is None,
    max_examples=int(EXAMPLES or 12),
    suppress_health_check=[HealthCheck.too_slow],
)
def test_a_function_that_nobody_thought_of(steps, seed):
    def make(checkpoint):
        return checkpoint(lambda w, x: run(steps, checkpoint, w, x) + jnp.tanh(x))

    assert_predicted(make, (F32((3, 3)), F32((3,))), most=4, seed=seed)

"""A Hypothesis strategy for random compositions of operations, loops, branches, names and checkpoints."""

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name as name
from operations import BINARY, UNARY

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

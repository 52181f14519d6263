"""Random differentiable programs for hypothesis, and their results operation by operation, bit for bit.

A program is a list of instructions `(operation, i, j)` on a list of vectors: each applies an operation to two vectors
that are there and appends the result. Inputs include infinities, NaN, signed zeros, subnormals and values whose
exponentials overflow.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from rematscope import jax_compat

SIZE = 3  # few shapes, so that each primitive is compiled once


def run_op_by_op(jaxpr: Any, operands: Any) -> list[Any]:
    """Return the results of a jaxpr, each primitive compiled alone.

    No compiler sees two operations at once, so none fuses or reorders them: equal operations on equal operands have
    equal bits.
    """
    body, constvars, consts = jax_compat.body_of(jaxpr)
    env = dict(zip((*constvars, *body.invars), (*consts, *operands), strict=True))

    def read(atom):
        return jax_compat.literal_value(atom) if jax_compat.is_literal(atom) else env[atom]

    for eqn in body.eqns:
        given = [read(atom) for atom in eqn.invars]
        if (called := jax_compat.called_body(eqn)) is not None:
            results = run_op_by_op(called, given)
        elif eqn.primitive.name == "optimization_barrier":
            results = given
        elif eqn.primitive.name == "scan":
            results = _scan(jax_compat.scan_of(eqn), given)
        elif eqn.primitive.name == "while":
            results = _while(jax_compat.while_of(eqn), given)
        elif eqn.primitive.name == "cond":
            branches = jax_compat.branches_of(eqn)
            which = min(max(int(given[0]), 0), len(branches) - 1)
            results = run_op_by_op(branches[which], given[1:])
        else:
            results = jax_compat.run(eqn, given)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in body.outvars]


def _scan(loop, given):
    consts, carry, stacks = (
        given[: loop.consts],
        given[loop.consts : loop.consts + loop.carries],
        given[loop.consts + loop.carries :],
    )
    made = [None] * loop.length
    for i in range(loop.length)[:: -1 if loop.reverse else 1]:
        results = run_op_by_op(loop.body, [*consts, *carry, *(stack[i] for stack in stacks)])
        carry, made[i] = results[: loop.carries], results[loop.carries :]
    return [*carry, *(jnp.stack(parts) for parts in zip(*made, strict=True))]


def _while(loop, given):
    tested, kept = given[: loop.tested], given[loop.tested : loop.tested + loop.kept]
    carry = given[loop.tested + loop.kept :]
    while run_op_by_op(loop.condition, [*tested, *carry])[0]:
        carry = run_op_by_op(loop.body, [*kept, *carry])
    return carry


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays have equal bits, signs of zero included; one NaN is as good as another."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype == jax.dtypes.float0:
        return a.dtype == b.dtype and a.shape == b.shape
    if not jnp.issubdtype(a.dtype, jnp.inexact):
        return bool(np.array_equal(a, b))
    wide = np.complex128 if jnp.issubdtype(a.dtype, jnp.complexfloating) else np.float64
    both_nan = np.isnan(a.astype(wide)) & np.isnan(b.astype(wide))
    words = (np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(*x.shape, -1) for x in (a, b))
    return bool((both_nan | np.equal(*words).all(-1)).all())


@jax.custom_jvp
def _with_jvp(x):
    return jnp.where(x > 0, x, 0.1 * x)


@_with_jvp.defjvp
def _jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return _with_jvp(x), jnp.where(x > 0, t, 0.1 * t) * jnp.exp(x) * jnp.exp(x)


@jax.custom_vjp
def _with_vjp(x, y):
    return x * y


_with_vjp.defvjp(
    lambda x, y: (x * y, (x, y, jnp.exp(x))),
    lambda saved, ct: (jnp.clip(ct, -1, 1) * saved[1] * saved[2], ct * saved[0] + jnp.asarray(0.5, ct.dtype)),
)


def _unary(f):
    return lambda x, y, more: f(x)


def _binary(f):
    return lambda x, y, more: f(x, y)


_UNARY = (
    "abs neg sign exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt rsqrt cbrt "
    "logistic erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e square reciprocal floor ceil round"
).split()
_BINARY = "add sub mul div max min pow atan2 rem".split()


def _masked(x, y, more):
    return jnp.where(x < 3, jnp.exp(x) * jnp.exp(x), 403.0).astype(x.dtype)


def _nan_branch(x, y, more):
    return jnp.where(x > 0, jnp.sqrt(x) * jnp.log(x), y * y)


def _scanned(x, y, more, checkpoint=lambda f: f, reverse=False):
    def step(h, z):
        h = jnp.tanh(more["w"] @ h + more["b"]) * z + y * more["b"]
        return h, jnp.exp(h) * z

    h, zs = lax.scan(checkpoint(step), x, jnp.stack([x, y, x * y, y]), reverse=reverse)
    return h + jnp.sum(zs[1:], axis=0)


def _indexed_loop(x, y, more):
    rows = jnp.stack([x, y, x + y])
    return lax.fori_loop(0, 3, lambda i, h: h * rows[i] + more["w"][i], x)


def _nested(x, y, more):
    def outer(h, z):
        h, _ = lax.scan(lambda g, _: (jnp.sin(g * z) + y, None), h, None, length=2)
        return h, h

    h, hs = lax.scan(outer, x, more["w"])
    return h + hs[0]


def _while_loop(x, y, more):
    stopped = lax.stop_gradient(x)
    count = lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 0.5), (0, stopped))[1]
    return y * count


def _branch(x, y, more):
    return lax.cond(x[0] > 0, lambda x, y: x * jnp.exp(y), lambda x, y: jnp.log(x) - y, x, y)


def _switch(x, y, more):
    branches = [lambda x: x * x, lambda x: jnp.exp(x) * jnp.exp(x), lambda x: more["w"] @ x]
    return lax.switch(more["n"], branches, x) + y


def _dropped(x, y, more):
    keep = jax.random.bernoulli(more["key"], 0.5, x.shape)
    return jnp.where(keep, x / 0.5, 0).astype(x.dtype) * y


def _noisy(x, y, more):
    return x + y * jax.random.normal(jax.random.fold_in(more["key"], 7), x.shape, jnp.float32).astype(x.dtype)


def _checkpointed(x, y, more):
    return jax.checkpoint(lambda x, y: jnp.exp(x) * jnp.exp(x) * jnp.sin(y) + x)(x, y)


def _saving_dots(x, y, more):
    policy = jax.checkpoint_policies.dots_saveable
    return jax.checkpoint(lambda x: jnp.tanh(more["w"] @ (more["w"] @ x)) * jnp.exp(x), policy=policy)(x) + y


def _softmax(x, y, more):
    return jax.nn.softmax(x * more["b"]) * jax.nn.gelu(y)


def _normalized(x, y, more):
    mean = jnp.mean(x)
    return (x - mean) * lax.rsqrt(jnp.mean((x - mean) ** 2) + 1e-3) * y


def _moved(x, y, more):
    x = lax.dynamic_update_slice(x, y[1:], (more["n"],))
    return x.at[more["n"]].add(y[0])[::-1] * jnp.take(y, jnp.array([2, 0, 0]))


def _loss_scaled(x, y, more):
    return (x * 2.0**15).astype(x.dtype) * y / jnp.asarray(2.0**15, x.dtype)


OPERATIONS = {
    **{name: _unary(getattr(lax, name)) for name in _UNARY},
    **{name: _binary(getattr(lax, name)) for name in _BINARY},
    "masked overflow": _masked,
    "NaN branch": _nan_branch,
    "matmul": lambda x, y, more: more["w"] @ x,
    "outer": lambda x, y, more: jnp.outer(x, y) @ more["b"],
    "square twice": lambda x, y, more: (x * x) * (y * y),
    "cubes": lambda x, y, more: x**3 * y**-2,
    "sorted": lambda x, y, more: jnp.sort(x) * jnp.cumsum(y),
    "cumulative": lambda x, y, more: lax.cummax(x) + lax.cumlogsumexp(y) * lax.cumprod(x),
    "reduced": lambda x, y, more: x * jnp.max(y) + jnp.prod(x),
    "clamped": lambda x, y, more: lax.clamp(jnp.asarray(-1, x.dtype), x, jnp.asarray(2, x.dtype)) * y,
    "stopped": lambda x, y, more: lax.stop_gradient(x) * y,
    "rounded": lambda x, y, more: lax.reduce_precision(x, 5, 3) * y,
    "complex": lambda x, y, more: jnp.abs(lax.complex(x.astype(jnp.float32), y.astype(jnp.float32)) ** 2).astype(
        x.dtype
    ),
    "softmax": _softmax,
    "normalized": _normalized,
    "moved": _moved,
    "loss scale": _loss_scaled,
    "scan": _scanned,
    "reversed scan": functools.partial(_scanned, reverse=True),
    "checkpointed scan": functools.partial(_scanned, checkpoint=jax.checkpoint),
    "indexed loop": _indexed_loop,
    "nested scans": _nested,
    "while loop": _while_loop,
    "branch": _branch,
    "switch": _switch,
    "dropout": _dropped,
    "noise": _noisy,
    "custom JVP": lambda x, y, more: _with_jvp(x),
    "custom VJP": lambda x, y, more: _with_vjp(x, y),
    "checkpoint": _checkpointed,
    "checkpoint with a policy": _saving_dots,
    "jit": lambda x, y, more: jax.jit(lambda x, y: x * y + jnp.sin(x))(x, y),
}

_HARD = [0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, 100.0, -100.0]
_EASY = [1.0, -1.0, 0.5, 2.0, -0.25, 3.0, 1e-3]

instructions = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9
)
dtypes = st.sampled_from(["float32", "float32", "float16", "bfloat16"])


def vectors(size: int) -> st.SearchStrategy:
    """Values of a vector: mostly ordinary ones, some that overflow, vanish or are no numbers."""
    one = st.one_of(st.sampled_from(_EASY), st.sampled_from(_EASY), st.sampled_from(_HARD))
    return st.lists(one, min_size=size, max_size=size)


def program_of(steps: Any) -> Any:
    """The function of some instructions: a scalar, the last vector but one, and an integer."""

    def program(w, b, x, n, key):
        values = [x, b, x * 0.5]
        for name, i, j in steps:
            one, other = values[-1 - i % len(values)], values[-1 - j % len(values)]
            with jax.named_scope(name.replace(" ", "_")):
                values.append(OPERATIONS[name](one, other, {"w": w, "b": b, "n": n, "key": key}).astype(x.dtype))
        return jnp.sum(values[-1]), values[-2] * values[-1], n + 1

    return program


def array(numbers: Any, dtype: str) -> np.ndarray:
    """Drawn values as an array; what is too large for the type is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float32).astype(dtype)


def arguments(numbers: Any, dtype: str) -> tuple[Any, ...]:
    """The arguments of a program: a matrix, a vector, a vector, an integer and a PRNG key."""
    flat = array(numbers, dtype)
    parts = [flat[start:end] for start, end in itertools.pairwise((0, 9, 12, 15))]
    w, b, x = (jnp.asarray(part) for part in parts)
    return w.reshape(SIZE, SIZE), b, x, jnp.int32(1), jax.random.key(3)

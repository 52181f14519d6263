"""Functions of many kinds, each with small arguments: what `trace` must be right about.

Every case is checked by `test_zoo.py` against `jax.vjp` itself. Nothing here knows what the answers are.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from sampling import sampled

from rematscope import jax_compat

policies = jax.checkpoint_policies


class Later(functools.partial):
    """An argument that is made when it is asked for, since every process of a run reads all cases, and tries some."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A function and its arguments, which may be `Later` objects."""

    function: Callable
    given: tuple
    kwargs: dict

    @functools.cached_property
    def args(self) -> tuple:
        """The arguments, the same objects each time."""
        return tuple(arg() if isinstance(arg, Later) else arg for arg in self.given)


CASES: dict[str, Case] = {}


def added_to(cases: dict[str, Case]) -> Callable:
    """A decorator, `@case(*args, **kwargs)`, that adds a function, called with these arguments, to some cases."""

    def case(*args, **kwargs):
        def add(function):
            cases[function.__name__] = Case(function, args, kwargs)
            return function

        return add

    return case


case = added_to(CASES)


def variant(name, function, *args, **kwargs):
    CASES[name] = Case(function, args, kwargs)


def normal(seed, *shape, dtype=np.float32):
    """Numbers that are the same in every run; numpy's, so that making them compiles nothing."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# The seeds.


def layer(W, x):
    return jnp.sin(jnp.dot(W, x))


def net(W1, W2, W3, x):
    return layer(W3, layer(W2, layer(W1, x)))


NET = (normal(1, 5, 4), normal(2, 6, 5), normal(3, 7, 6), normal(4, 4))


def named_net(W1, W2, W3, x):
    x = checkpoint_name(layer(W1, x), name="a")
    x = checkpoint_name(layer(W2, x), name="b")
    return checkpoint_name(layer(W3, x), name="c")


def layerwise_net(W1, W2, W3, x):
    g = jax.checkpoint(layer)
    return g(W3, g(W2, g(W1, x)))


f3 = jax.checkpoint(net, policy=policies.dots_with_no_batch_dims_saveable)
f4 = jax.checkpoint(named_net, policy=policies.save_only_these_names("a"))

variant("net", net, *NET)
variant("net_each_layer_checkpointed", layerwise_net, *NET)
variant("net_checkpointed", jax.checkpoint(net), *NET)
variant("net_saving_dots", f3, *NET)
variant("net_saving_a", f4, *NET)


@case(np.float32(0.3))
def sin_of_sin(x):
    return jnp.sin(jnp.sin(x))


variant("sin_of_sin_checkpointed", jax.checkpoint(sin_of_sin), np.float32(0.3))


def pipeline(w1, w2, x):
    y = jax.nn.relu(x @ w1)
    return jnp.sum((y @ w2) ** 2)


PIPELINE = (normal(5, 4, 4), normal(6, 4, 4), normal(7, 6, 4))

variant("pipeline", pipeline, *PIPELINE)
variant("pipeline_under_vmap", jax.vmap(jax.checkpoint(pipeline), (None, None, 0)), *PIPELINE[:2], normal(8, 3, 6, 4))
variant(
    "pipeline_batched_weights",
    jax.vmap(jax.checkpoint(pipeline, policy=policies.dots_with_no_batch_dims_saveable)),
    *(normal(9 + i, 3, *a.shape) for i, a in enumerate(PIPELINE)),
)


def recursive_checkpoint(funs):
    if len(funs) == 1:
        return funs[0]
    if len(funs) == 2:
        f1, f2 = funs
        return lambda x: f1(f2(x))
    f1 = recursive_checkpoint(funs[: len(funs) // 2])
    f2 = recursive_checkpoint(funs[len(funs) // 2 :])
    return lambda x: f1(jax.checkpoint(f2)(x))


def segments(n, k):
    """n sines in k checkpointed segments."""

    @jax.checkpoint
    def segment(x):
        for _ in range(n // k):
            x = jnp.sin(x)
        return x

    def f(x):
        for _ in range(k):
            x = segment(x)
        return x

    return f


variant("recursive_checkpoint_8", recursive_checkpoint([jnp.sin] * 8), normal(10, 3))
variant("segments_8_2", segments(8, 2), normal(11, 3))


# Names and policies of their own; tracing/test_remat_cases.py has JAX's policies, with what each recomputes.


def block(w, x):
    y = checkpoint_name(x @ w, "y")
    z = checkpoint_name(jnp.tanh(y), "z")
    return jnp.sum(z @ w.T)


BLOCK = (normal(12, 4, 5), normal(13, 3, 4))

variant("names_without_checkpoint", block, *BLOCK)
variant("own_policy", jax.checkpoint(block, policy=lambda prim, *_, **__: prim.name == "dot_general"), *BLOCK)


@case(*BLOCK)
@jax.checkpoint
def nested_checkpoints(w, x):
    inner = jax.checkpoint(lambda x: jnp.sin(x @ w), policy=policies.everything_saveable)
    return jnp.sum(jax.checkpoint(lambda x: jnp.cos(inner(x)) @ w.T)(x))


@case(normal(14, 3))
def checkpoint_of_two_inputs_used_outside(x):
    y = jnp.exp(x)
    return jax.checkpoint(lambda x, y: jnp.sin(x) * jnp.cos(y))(x, y) + y


# Loops.


def cell(w, x):
    return jnp.tanh(w @ x)


LOOP = (normal(15, 4, 4), normal(16, 4))


@case(*LOOP)
def scanned(w, x):
    return lax.scan(lambda x, _: (cell(w, x), jnp.sum(x)), x, None, length=3)


@case(*LOOP)
def scan_of_checkpoint(w, x):
    return lax.scan(jax.checkpoint(lambda x, _: (cell(w, x), None)), x, None, length=3)[0]


@case(*LOOP)
@jax.checkpoint
def checkpoint_of_scan(w, x):
    return lax.scan(lambda x, _: (cell(w, x), None), x, None, length=3)[0]


@case(*LOOP)
@jax.checkpoint
def checkpoint_of_scan_of_checkpoint(w, x):
    body = jax.checkpoint(lambda x, _: (cell(w, jnp.sin(x)), None), policy=policies.dots_saveable)
    return lax.scan(body, x, None, length=3)[0]


@case(normal(17, 3, 4, 4), normal(18, 4))
def scanned_layers(ws, x):
    return lax.scan(lambda x, w: (cell(w, x), x[0]), x, ws)


@case(normal(17, 3, 4, 4), normal(18, 4))
def scanned_layers_saving_dots(ws, x):
    body = jax.checkpoint(lambda x, w: (cell(w, x), None), policy=policies.dots_with_no_batch_dims_saveable)
    return lax.scan(body, x, ws)[0]


@case(normal(19, 3, 4), normal(20, 4))
def reverse_scan(xs, x):
    return lax.scan(lambda c, x: (jnp.sin(c) * x, c + x), x, xs, reverse=True)


@case(normal(21, 4), normal(22, 4), normal(23, 3, 4))
def scan_of_many_carries(c, h, xs):
    def lstm(carry, x):
        c, h, count = carry
        c = jax.nn.sigmoid(x) * c + jnp.tanh(h)
        return (c, jnp.tanh(c), count + 1), {"c": c, "none": None}

    (c, h, count), ys = lax.scan(lstm, (c, h, 0), xs)
    return c, h, count, ys


def sines(x, n):
    return lax.scan(lambda x, _: (jnp.sin(x), None), x, None, length=n)[0]


@case(np.float32(0.5))
def nested_scans(x):
    return lax.scan(lambda x, _: (sines(x, 4), None), x, None, length=4)[0]


@case(np.float32(0.5))
def nested_scans_inner_checkpointed(x):
    return lax.scan(jax.checkpoint(lambda x, _: (sines(x, 4), None)), x, None, length=4)[0]


@case(normal(24, 2, 3, 4), normal(25, 4))
def nested_scans_of_slices(xss, c):
    def outer(c, xs):
        c, ys = lax.scan(lambda c, x: (jnp.sin(c * x), c), c, xs)
        return c, jnp.sum(jnp.exp(ys))

    return lax.scan(jax.checkpoint(outer), c, xss)


@case(*LOOP)
def static_fori_loop(w, x):
    return lax.fori_loop(0, 3, lambda i, x: cell(w, x) * i, x)


@case(normal(26, 4), 3)
def while_loop_beside(x, n):
    scale = lax.while_loop(lambda s: s < 10 * n, lambda s: s * 2, n + 0)
    return jnp.sin(x) * scale


@case(normal(26, 4))
def while_loop_of_floats_beside(x):
    root = lax.stop_gradient(x)
    root = lax.while_loop(lambda r: jnp.any(jnp.abs(r * r - 2) > 1e-3), lambda r: (r + 2 / r) / 2, jnp.abs(root) + 1)
    return jnp.sin(x) * root


@case(normal(27, 4), True)
def branches(x, flag):
    return lax.cond(flag, lambda x: jnp.sin(x) * 2, lambda x: jnp.exp(x), x)


@case(normal(27, 4), 1)
@jax.checkpoint
def checkpointed_switch(x, i):
    return lax.switch(i, [jnp.sin, lambda x: x * x, lambda x: jnp.ones_like(x)], x)


@case(normal(28, 3, 4), normal(29, 4))
def branch_in_scan(xs, c):
    def step(c, x):
        return lax.cond(x[0] > 0, lambda c: jnp.sin(c) * x, lambda c: c + x, c), None

    return lax.scan(jax.checkpoint(step), c, xs)[0]


@case(normal(30, 8))
def cumulative(x):
    return jnp.cumsum(jnp.sin(x)) + jnp.cumprod(x) + lax.cummax(x)


@case(normal(30, 8))
@jax.checkpoint
def associative_scan(x):
    return lax.associative_scan(jnp.multiply, jnp.cos(x))


@case(normal(31, 3, 4))
def mapped(xs):
    return lax.map(lambda x: jnp.sum(jnp.exp(x)) * x, xs)


# Transformations.

variant("vmap_of_checkpoint", jax.vmap(jax.checkpoint(layer), (None, 0)), normal(32, 5, 4), normal(33, 3, 4))
variant("checkpoint_of_vmap", jax.checkpoint(jax.vmap(layer, (None, 0))), normal(32, 5, 4), normal(33, 3, 4))
variant("vmap_of_scan", jax.vmap(scanned, (None, 0)), LOOP[0], normal(34, 2, 4))
variant("jit_inside", lambda W, x: jnp.sum(jax.jit(layer)(W, x) * jax.jit(jnp.cos)(x[0])), *NET[::3])
variant("jit_of_jit", jax.jit(jax.jit(layer)), *NET[::3])
variant("jit_of_checkpoint", jax.jit(jax.checkpoint(layer)), *NET[::3])
variant("checkpoint_of_jit", jax.checkpoint(jax.jit(layer)), *NET[::3])


def steepness(x):
    return jnp.sum(jax.grad(lambda x: jnp.sum(jax.checkpoint(sin_of_sin)(x)))(x) ** 2)


variant("gradient_of_checkpoint", steepness, normal(35, 3))
variant("jvp_inside", lambda x: jax.jvp(jnp.tanh, (x,), (x * x,)), normal(36, 3))


@jax.custom_jvp
def log1pexp(x):
    return jnp.log1p(jnp.exp(x))


log1pexp.defjvps(lambda t, out, x: t * jax.nn.sigmoid(x))

variant("custom_jvp", lambda x: log1pexp(jnp.sin(x)), normal(37, 3))
variant("custom_jvp_checkpointed", jax.checkpoint(lambda x: log1pexp(jnp.sin(x))), normal(37, 3))


@jax.custom_vjp
def clipped(x, scale):
    return jnp.sin(x) * scale["by"]


def clipped_fwd(x, scale):
    return clipped(x, scale), {"cos": jnp.cos(x), "rest": (scale, None, 2)}


def clipped_bwd(saved, ct):
    _, _, two = saved["rest"]
    return jnp.clip(ct * saved["cos"] * two, -1, 1), {"by": jnp.sum(ct)}


clipped.defvjp(clipped_fwd, clipped_bwd)
CLIPPED = (normal(38, 3), np.float32(1.5))


@case(*CLIPPED)
def custom_vjp(x, s):
    return jnp.exp(clipped(x, {"by": s}))


variant("custom_vjp_checkpointed", jax.checkpoint(custom_vjp), *CLIPPED)


@case(*CLIPPED)
def custom_vjp_in_scan(x, s):
    return lax.scan(jax.checkpoint(lambda x, _: (clipped(x, {"by": s}), None)), x, None, length=3)[0]


@jax.custom_vjp
def turned(x):
    return lax.scan(lambda carry, _: ((carry[0] + 1, carry[1] * jnp.cos(0.5 * carry[0])), None), (0, x), None, 3)[0][1]


def turned_bwd(_, ct):
    # Twice what it takes: the counter is that of the forward pass, in a loop that has another around it.
    both, _ = lax.scan(lambda ct, _: (turned(ct), None), ct, None, 2)
    return (both,)


turned.defvjp(lambda x: (turned(x), None), turned_bwd)
variant("counter_of_a_loop_nested_otherwise", turned, normal(84, 3))


# Arguments and outputs.

Pair = collections.namedtuple("Pair", "left right")


@case({"w": normal(39, 3), "b": (normal(40, 3), None)}, Pair(normal(41, 3), [normal(42, 3)]))
def pytrees(params, pair):
    out = params["w"] * pair.left + params["b"][0]
    return Pair(jnp.sin(out), {"right": (pair.right[0] * out, None)})


variant("pytrees_checkpointed", jax.checkpoint(pytrees), *CASES["pytrees"].args)


@case(normal(43, 3), scale=normal(44, 3), shift=2.0)
def keywords(x, *, scale, shift):
    return jnp.sin(x * scale) + shift * x


@case(normal(45, 3), 2.0, 3, True)
def python_scalars(x, a, n, flag):
    return jnp.where(flag, jnp.sin(x) * a * n, x)


@case(2.0, 3.0)
@jax.checkpoint
def python_scalars_only(a, b):
    return jnp.sin(a) * b


@case(1 + 2j, normal(46, 3))
def complex_scalar(z, x):
    return jnp.real(jnp.exp(z * x))


variant("repeated_argument", lambda a, b: jnp.sin(a) * b, *[normal(47, 3)] * 2)
variant("unused_argument", lambda a, b: jnp.sin(a), normal(48, 3), normal(49, 2))
variant("output_is_argument", lambda a, b: (a, a, jnp.sin(b)), normal(48, 3), normal(49, 2))
variant("output_is_constant", lambda a: (jnp.sin(a), jnp.ones(3), 2.0), normal(48, 3))
variant("integer_output", lambda x: (jnp.argmax(x), jnp.sin(x), x > 0), normal(50, 4))
variant("integers_beside", lambda x, i, mask: jnp.where(mask, jnp.sin(x[i]), 0.0), normal(51, 4), np.array([2, 0, 1]),
        np.array([True, False, True]))  # fmt: skip
variant("abstract_arguments", net, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in NET))
variant("empty_array", lambda x, e: jnp.sin(x) + jnp.sum(jnp.sin(e)), normal(52, 2), normal(53, 0, 3))

for dtype in ("bfloat16", "float16", "complex64"):
    variant(f"{dtype}_layer", jax.checkpoint(layer), *(a.astype(dtype) for a in (NET[0], NET[3])))


@case(jax.ShapeDtypeStruct((4,), np.dtype("bfloat16")), normal(54, 4))
def mixed_precision(x, y):
    return jnp.sin(x.astype(jnp.float32)) * y, (y.astype(jnp.bfloat16) * x)


@case(normal(55, 6), jax.random.key(0))
@jax.checkpoint
def dropout(x, key):
    keep = jax.random.bernoulli(key, 0.5, x.shape)
    return jnp.where(keep, jnp.sin(x) / 0.5, 0.0)


@case(normal(55, 6), jax.random.PRNGKey(0))
def dropout_with_raw_key(x, key):
    key, used = jax.random.split(key)
    return jnp.sin(x) * jax.random.normal(used, x.shape), key


@case(normal(55, 3, 4), jax.random.key(0))
def dropout_in_scan(xs, key):
    def step(carry, x):
        x0, key = carry
        key, used = jax.random.split(key)
        return (jnp.sin(x0 * jax.random.uniform(used, x.shape)) + x, key), None

    return lax.scan(jax.checkpoint(step), (xs[0], key), xs)[0][0]


TABLE = jnp.asarray(normal(56, 4))
MASK = jnp.asarray(np.tri(4, dtype=bool))

variant("closed_over_array", lambda x: jnp.sin(x * TABLE), normal(57, 4))
variant("closed_over_array_checkpointed", jax.checkpoint(lambda x: jnp.sin(x * TABLE)), normal(57, 4))
variant("closed_over_numpy", lambda x: jnp.sin(x) * np.arange(4.0, dtype=np.float32), normal(57, 4))
variant(
    "closed_over_in_scan",
    lambda x: lax.scan(jax.checkpoint(lambda x, _: (jnp.sin(x * TABLE), None)), x, None, length=3)[0],
    normal(57, 4),
)
variant("literal_residual", lambda x: 2.0 * x + jnp.sin(3.0) * x, np.float32(0.7))
variant("literal_residuals_of_a_checkpoint", jax.checkpoint(lambda x: jnp.sin(x * 2.0) * 3.0), np.float32(0.7))


# Networks.


@case(normal(58, 2, 3, 8), normal(59, 8, 24), normal(60, 8, 8))
def attention(x, qkv, out):
    q, k, v = jnp.split((x @ qkv).reshape(2, 3, 2, 12), 3, axis=-1)
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    logits = jnp.where(MASK[:3, :3], logits, -jnp.inf)
    context = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits), v)
    return context.reshape(2, 3, 8) @ out


for policy in ("dots_saveable", "dots_with_no_batch_dims_saveable"):
    function = jax.checkpoint(attention, policy=getattr(policies, policy))
    variant(f"attention_{policy}", function, *CASES["attention"].args)


@case(normal(61, 3, 8), normal(62, 8), normal(63, 8))
def layer_norm(x, scale, bias):
    x = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * scale + bias


variant("layer_norm_checkpointed", jax.checkpoint(layer_norm), *CASES["layer_norm"].args)
variant("softmax", jax.nn.softmax, normal(64, 3, 4))
variant("log_softmax", lambda x: jax.nn.log_softmax(x)[:, 1], normal(64, 3, 4))
variant("activations", lambda x: jax.nn.gelu(x) + jax.nn.silu(x) + jax.nn.relu(x) + jax.nn.softplus(x), normal(65, 4))
variant("activations_checkpointed", jax.checkpoint(CASES["activations"].function), normal(65, 4))
variant("rounded", jax.checkpoint(lambda x: lax.reduce_precision(jnp.sin(x), 8, 7) ** 2), normal(65, 3))
variant("exp", jnp.exp, normal(66, 3))
variant("power_and_abs", lambda x: jnp.abs(x) ** 1.5 + x**3 + jnp.sign(x) * jnp.maximum(x, 0.1), normal(67, 3))


@case(normal(68, 1, 6, 6, 2), normal(69, 3, 3, 2, 4))
@functools.partial(jax.checkpoint, policy=policies.dots_saveable)
def convolution(image, kernel):
    y = lax.conv_general_dilated(image, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.sum(jax.nn.relu(y) ** 2)


# Indexing, sorting, linear algebra, and operations with rules of their own.

variant("indexing", lambda x: x[1:3, ::2] * x[0, 1] + x[jnp.array([0, 1])][:, :2], normal(70, 4, 4))
variant("scatter", lambda x, y: jnp.sin(x).at[jnp.array([1, 1, 2])].add(y).at[0].set(3.0), normal(71, 4), normal(72, 3))
variant("dynamic_slice", lambda x, i: jnp.sin(lax.dynamic_slice(x, (i,), (2,))), normal(73, 5), 1)
variant("sort", lambda x: jnp.sort(jnp.sin(x)) * jnp.arange(4.0), normal(74, 4))
variant("argsort", lambda x: x[jnp.argsort(x)] ** 2, normal(74, 4))
variant("top_k", lambda x: lax.top_k(jnp.sin(x), 2), normal(74, 4))
variant("reductions", lambda x: (jnp.max(x, 0), jnp.prod(x, 1), jnp.std(x), jax.nn.logsumexp(x)), normal(75, 3, 4))


@case(normal(76, 3, 3), normal(77, 3))
def cholesky_solve(a, b):
    factor = jnp.linalg.cholesky(a @ a.T + 3 * jnp.eye(3))
    return lax.linalg.triangular_solve(factor, b[:, None], left_side=True, lower=True)


@case(normal(76, 3, 3), normal(77, 3))
@jax.checkpoint
def custom_linear_solve(a, b):
    a = a @ a.T + 3 * jnp.eye(3)
    return lax.custom_linear_solve(lambda x: a @ x, b, lambda _, b: jnp.linalg.inv(a) @ b, symmetric=True)


variant("linear_solve", jnp.linalg.solve, normal(76, 3, 3) + 3 * np.eye(3, dtype=np.float32), normal(77, 3))
variant("fft", lambda x: jnp.abs(jnp.fft.rfft(jnp.sin(x))), normal(78, 8))


@case(normal(79, 3))
def barrier_of_the_users_own(x):
    y, x = lax.optimization_barrier((jnp.sin(x), x))
    return y * jnp.cos(x)


variant("stopped_gradient", lambda x: jnp.sin(x) * lax.stop_gradient(jnp.exp(x)), normal(80, 3))
variant("stopped_gradient_checkpointed", jax.checkpoint(CASES["stopped_gradient"].function), normal(80, 3))


@case(normal(81, 3))
@jax.checkpoint
def prints(x):
    y = jnp.sin(x)
    jax.debug.print("y = {}", y)
    return jnp.sin(y)


@case(normal(82, 4), normal(83, 4))
def sharded(x, w):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    inner = jax.shard_map(lambda x, w: jnp.sin(x * w), mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    return jax.checkpoint(inner)(x, w)


def _uses_checkpoint(case) -> bool:
    jaxpr = str(jax.make_jaxpr(case.function)(*case.args, **case.kwargs))
    return "RematTraced[" in jaxpr or "CheckpointName[" in jaxpr


# JAX_REMAT3 changes what a checkpoint or a name becomes and nothing else: the other cases need no second look.
_names = [name for name, case in CASES.items() if not jax_compat.remat3() or _uses_checkpoint(case)]
every_case = pytest.mark.parametrize("name", _names)

# To run both programs takes a while.
sampled_case = pytest.mark.parametrize("name", sampled(_names, 8))

"""Fused attention kernels, traced without the device that they are for."""

import contextlib
import functools
import random
import threading

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.cudnn import fused_attention_stablehlo  # private: what is asked about a GPU
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P
from releases import since

from rematscope import LintKind, TargetError, cost_of, jax_compat, lint, measure, plan, trace
from rematscope.render.view import plain_text

Shape = jax.ShapeDtypeStruct
KERNEL = "dot_product_attention_fwd_wrapper"
save_names = jax.checkpoint_policies.save_only_these_names
pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="about machines without a GPU")


def attention(query, key, value, bias=None, implementation="cudnn", **options):
    return jax.nn.dot_product_attention(query, key, value, bias, implementation=implementation, **options)


def drawn_case(rng: random.Random) -> tuple[dict, tuple]:
    """Options of attention, and the shapes of its arguments."""
    batch, groups, per_group = rng.randint(1, 3), rng.randint(1, 2), rng.choice((1, 1, 4))
    queries, size = 8 * rng.randint(1, 6), 8 * rng.randint(1, 32)
    dtype = rng.choice((jnp.bfloat16, jnp.float16))
    options = rng.choice(({}, {"is_causal": True}, {"is_causal": True, "local_window_size": (rng.randint(0, 9), 0)}))
    keys = queries if options else 8 * rng.randint(1, 6)
    shapes = [(batch, queries, groups * per_group, size), *[(batch, keys, groups, size)] * 2]
    if rng.random() < 0.5:
        shapes.append((1, groups * per_group, queries, keys))
    return options, tuple(Shape(shape, dtype) for shape in shapes)


def kernels(passes) -> dict[str, int]:
    """The FLOPs of each fused kernel of both passes."""
    equations = [e for program in (passes.forward, passes.backward) for e, _ in program.walk()]
    return {e.primitive: cost_of(e).flops for e in equations if "attention" in e.primitive}


def types(values):
    return [(tuple(v.shape), v.dtype) for v in values]


@pytest.mark.slow
@since("0.11", "a bias is an operand of the kernel, without operations of its own around it")
def test_results_and_flops_are_those_of_the_matmuls_that_the_kernel_replaces(seed):
    """The forward kernel replaces two matmuls, over the pairs that the mask leaves; a triangle is half a square."""
    rng = random.Random(seed)
    for _ in range(6):
        options, args = drawn_case(rng)
        fused = trace(functools.partial(attention, **options), *args)
        unfused = trace(functools.partial(attention, implementation="xla", **options), *args)
        assert types(fused.outputs) == types(unfused.outputs)
        assert types(fused.backward.outputs) == types(unfused.backward.outputs)
        matmuls = sum(cost_of(e).flops for e, _ in unfused.forward.walk() if e.primitive == "dot_general")
        queries, keys = args[0].shape[1], args[1].shape[1]
        distance = np.arange(queries)[:, None] - np.arange(keys)
        window, _ = options.get("local_window_size", (None, None))
        share = 1.0 if not options else 0.5 if window is None else np.mean((distance >= 0) & (distance <= window))
        forward, backward = kernels(fused).values()
        assert forward == pytest.approx(share * matmuls)
        assert backward == pytest.approx(2.5 * forward)
        assert not fused.cost.uncounted
        assert KERNEL in fused.opaque_primitives


def in_a_scan(f):
    return lambda *args: lax.scan(lambda _, each: (None, f(*each)), None, args)[1]


def on_three_devices(f):
    mesh = AbstractMesh((3,), ("d",), axis_types=(AxisType.Auto,))
    local = lambda *args: f(*(arg[0] for arg in args))[None]  # noqa: E731
    return jax.shard_map(local, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)


AROUND = [jax.jit, jax.checkpoint, jax.vmap, in_a_scan, on_three_devices]


@pytest.mark.parametrize("around", AROUND, ids=lambda each: each.__name__)
def test_loops_and_meshes_around_a_kernel_do_not_change_its_flops(around, seed):
    """The FLOPs of a kernel are those of one iteration of a loop, and of one device."""
    options, args = drawn_case(random.Random(seed))
    args = args[:3]  # JAX 0.11 cannot map a bias that all sequences share
    alone = kernels(trace(functools.partial(attention, **options), *args))
    if around not in (jax.jit, jax.checkpoint):
        args = tuple(Shape((3, *arg.shape), arg.dtype) for arg in args)
    if around is jax.vmap:
        alone = {primitive: 3 * flops for primitive, flops in alone.items()}
    assert kernels(trace(around(functools.partial(attention, **options)), *args)) == alone


def test_the_checks_of_other_threads_and_later_ones_stay_jax_s_own():
    options, args = drawn_case(random.Random(1))
    checks = fused_attention_stablehlo.check_cudnn_version, fused_attention_stablehlo.check_compute_capability
    inside, asked = threading.Event(), threading.Event()
    refused = []

    def other_thread():
        inside.wait(10)
        try:
            fused_attention_stablehlo.check_cudnn_version()
        except RuntimeError as error:
            refused.append(str(error))
        asked.set()

    def traced_while_asked(*args):
        inside.set()
        assert asked.wait(10)
        return attention(*args, **options)

    thread = threading.Thread(target=other_thread)
    thread.start()
    trace(traced_while_asked, *args)
    thread.join()
    assert refused == ["cuDNN is not detected."]
    with contextlib.suppress(ZeroDivisionError):
        trace(lambda *args: (attention(*args, **options), 1 / 0), *args)
    assert checks == (fused_attention_stablehlo.check_cudnn_version, fused_attention_stablehlo.check_compute_capability)
    with pytest.raises(RuntimeError, match="cuDNN is not detected"):
        jax.make_jaxpr(functools.partial(attention, **options))(*args)


def test_a_kernel_of_another_device_is_not_measured():
    options, args = drawn_case(random.Random(2))
    with pytest.raises(TargetError, match="cannot be compiled for cpu: JAX cannot lower dot_product_attention"):
        measure(functools.partial(attention, **options), *args)


X, W = Shape((2, 64, 128), jnp.bfloat16), Shape((128, 128), jnp.bfloat16)


def block(w, x):
    heads = checkpoint_name(x @ w, "qkv").reshape(2, 64, 2, 64)
    context = checkpoint_name(attention(heads, heads, heads), "context")
    return jnp.sin(context.reshape(2, 64, 128) @ w)


@pytest.mark.parametrize("remat3", [False, True])
def test_a_name_on_the_output_does_not_avoid_the_kernel(remat3):
    """The backward kernel reads the log-sum-exp, which has no name: measured on an H200, the time stays the same."""
    if remat3 and not jax_compat.REMAT3_IS_PREDICTABLE:
        pytest.skip("this JAX has no remat3, or JAX 0.10's")
    with jax_compat.use_remat3(remat3):
        for policy, saved in ((None, 0), (save_names("context"), X.size * 2)):
            passes = trace(jax.checkpoint(block, policy=policy), W, X)
            assert passes.bytes_by_kind()["computed"] == saved
            assert passes.backward.count(KERNEL, "R") == 1
        chosen = plan(jax.checkpoint(block), W, X, saved=1.0)
    assert "context" not in chosen.names
    assert chosen.trace.backward.count(KERNEL, "R") == 1


def test_a_plan_that_recomputes_the_kernel_names_the_policy_that_saves_it():
    text = plain_text(plan(jax.checkpoint(block), W, X, saved=1.0), 1000)
    assert f"a policy of your own that returns True for the primitive {KERNEL!r}" in text
    other = plain_text(
        plan(jax.checkpoint(lambda w, x: jnp.sin(checkpoint_name(x @ w, "h")) @ w), W, X, saved=0.0), 999
    )
    assert "primitive" not in other
    assert all(
        "; no choice of these names and JAX's policies within the budget recomputes less" in t for t in (text, other)
    )


def test_a_policy_that_knows_the_kernel_saves_both_of_its_results():
    policy = lambda primitive, *_, **__: primitive.name == KERNEL  # noqa: E731
    passes = trace(jax.checkpoint(block, policy=policy), W, X)
    saved = [r for r in passes.residuals if r.kind == "computed"]
    assert sorted((r.primitive, r.shape) for r in saved) == [(KERNEL, (2, 2, 64)), (KERNEL, (2, 64, 2, 64))]
    assert passes.backward.count(KERNEL) == 0


def named_block(w, x):
    """Return what `block` computes, with the kernel's residuals named in a rule around the kernel.

    `jax.vjp` returns a pytree of the residuals, so the rule can name them.
    """
    names, plain = functools.partial(checkpoint_name, name="context"), attention

    @jax.custom_vjp
    def named_attention(query, key, value):
        return plain(query, key, value)

    def forward(query, key, value):
        out, pullback = jax.vjp(plain, query, key, value)
        named = names(out)
        leaf = lambda r: named if r is out else names(r) if r.ndim == 3 else r  # noqa: E731  # 3: the log-sum-exp
        return named, jax.tree.map(leaf, pullback)

    named_attention.defvjp(forward, lambda pullback, cotangent: pullback(cotangent))
    heads = (x @ w).reshape(2, 64, 2, 64)
    return jnp.sin(named_attention(heads, heads, heads).reshape(2, 64, 128) @ w)


def test_names_on_the_residuals_in_a_rule_around_the_kernel_avoid_it():
    passes = trace(jax.checkpoint(named_block, policy=save_names("context")), W, X)
    saved = [r for r in passes.residuals if r.kind == "computed"]
    assert [r.name for r in saved] == ["context"] * 2
    assert passes.backward.count(KERNEL) == 0


@since("0.12", "jax_custom_vjp3 saves names in a rule")
@pytest.mark.parametrize("custom_vjp3", [False, True])
def test_remat3_saves_names_in_a_rule_around_the_kernel_with_custom_vjp3(custom_vjp3):
    before = jax.config.jax_custom_vjp3
    try:
        jax.config.update("jax_custom_vjp3", custom_vjp3)
        with jax_compat.use_remat3(True):
            passes = trace(jax.checkpoint(named_block, policy=save_names("context")), W, X)
    finally:
        jax.config.update("jax_custom_vjp3", before)
    assert passes.backward.count(KERNEL, "R") == (0 if custom_vjp3 else 1)


@since("0.12", "jax_remat3 does not ask a policy about kernels")
def test_with_remat3_no_advice_is_a_policy_that_asks_about_the_kernel():
    with jax_compat.use_remat3(True):
        planned = plain_text(plan(jax.checkpoint(block), W, X, saved=1.0), 1000)
        (found,) = (f for f in lint(jax.checkpoint(block), W, X).findings if f.name == "context")
    for text in (planned, found.text):
        assert "in the forward rule of a custom_vjp around the kernel" in text
        assert "a policy of your own" not in text


@since("0.12", "jax_remat3 does not ask a policy about kernels")
def test_lint_says_how_to_save_the_kernel_s_residuals_with_remat3():
    policy = lambda primitive, *_, **__: primitive.name == KERNEL  # noqa: E731
    with jax_compat.use_remat3(True):
        (found,) = (f for f in lint(jax.checkpoint(block, policy=policy), W, X).findings if f.kind == LintKind.REMAT3)
    assert "in the forward rule of a custom_vjp around it" in found.text
    assert "Name the values with" not in found.text


def test_lint_says_why_a_name_on_the_output_does_not_avoid_the_kernel():
    (found,) = (f for f in lint(jax.checkpoint(block), W, X).findings if f.name == "context")
    assert "log-sum-exp" in found.text and KERNEL in found.text


def splash_attention(heads: int, length: int, fused: bool):
    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.FullMask((length, length))] * heads)
    apart = {} if fused else {"block_q_dq": 128, "block_kv_dq": 128}
    forward_blocks = dict.fromkeys(("block_q", "block_kv", "block_kv_compute"), 128)
    backward_blocks = dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"), 128)
    sizes = splash_attention_kernel.BlockSizes(**forward_blocks, **backward_blocks, **apart, use_fused_bwd_kernel=fused)
    return splash_attention_kernel.make_splash_mha(
        mask, head_shards=1, q_seq_shards=1, block_sizes=sizes, residual_checkpoint_name="context"
    )


@since("0.8", "splash attention names its residuals")
@pytest.mark.parametrize(("fused", "ratio"), [(True, 2.5), (False, 3.5)])
def test_splash_attention_s_residuals_have_their_name(fused, ratio):
    """Its fused backward kernel has five matmuls; of the two unfused ones, one has four and the other three."""
    heads, length, size = 2, 256, 128
    kernel = splash_attention(heads, length, fused)
    shape = Shape((heads, length, size), jnp.bfloat16)
    passes = trace(jax.checkpoint(kernel, policy=save_names("context")), shape, shape, shape)
    named = [r for r in passes.residuals if r.name == "context"]
    assert sorted(r.shape for r in named) == [(heads, length), (heads, length, size)]
    assert passes.backward.count("pallas_call", "R") == 0
    matmuls = 4 * heads * length**2 * size
    work = [
        sum(cost_of(e).flops for e, _ in program.walk() if e.primitive == "pallas_call")
        for program in (passes.forward, passes.backward)
    ]
    assert work == pytest.approx([matmuls, ratio * matmuls], rel=0.04)


@since("0.12", "jax_remat3 runs forward rules in the backward pass alone")
@pytest.mark.parametrize("kernel", [attention, splash_attention(2, 256, True)], ids=["cuDNN", "splash"])
def test_a_kernel_that_remat3_runs_in_both_passes_is_recomputed(kernel):
    """The forward pass runs it without its residuals, which only the recompute asks for."""

    def layer(w, x):
        heads = x @ w
        return jnp.sin(kernel(heads, heads, heads) @ w)

    shape = (2, 64, 2, 64) if kernel is attention else (2, 256, 128)
    args = Shape((shape[-1], shape[-1]), jnp.bfloat16), Shape(shape, jnp.bfloat16)
    costs = []
    for mode in (False, True):
        with jax_compat.use_remat3(mode):
            passes = trace(jax.checkpoint(layer), *args)
            costs.append((passes.recompute_cost, passes.deferred_cost))
            assert plan(jax.checkpoint(layer), *args, saved="1 GiB").cost == 0
    assert costs[0] == costs[1] and costs[0][0].flops

"""The examples that the workbook grew from, with the counts that each must show."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from jax import lax
from zoo import NET, f3, f4, layerwise_net, net, normal, pipeline, policies, recursive_checkpoint, segments

from rematscope import trace


def counts(passes, primitive):
    """(recomputed, late) operations of one primitive in the backward pass."""
    return passes.backward.count(primitive, "R"), passes.backward.count(primitive, "D")


# The arguments W1, W2, W3 and x are always saved. Each layer's backward pass is `dz = dx * cos(y)`, `dW = outer(dz, x)`
# and `dx = dz @ W`: it needs a cosine and the layer's input, which is x or the sine of the previous layer.
@pytest.mark.parametrize(
    ("function", "residuals", "sines", "cosines", "dots"),
    [
        # 4 arguments, 3 cosines and the sines of layers 1 and 2 cross; nothing runs twice.
        (net, 9, 0, 0, 0),
        # The sines between layers are saved. A layer recomputes its dot, and computes its cosine for the first time.
        (layerwise_net, 6, 0, 3, 3),
        # Only arguments are saved: the dots are recomputed. Sines 1 and 2 are inputs of layers; sine 3 is unused.
        (jax.checkpoint(net), 4, 2, 3, 3),
        # The three dots are saved, so none is recomputed.
        (f3, 7, 2, 3, 0),
        # "a", the sine of layer 1, is saved: layer 2 starts from it. All dots and sine 2 are recomputed.
        (f4, 5, 1, 3, 3),
    ],
)
def test_three_layers_save_and_recompute_as_their_checkpoints_require(function, residuals, sines, cosines, dots):
    passes = trace(function, *NET)
    assert len(passes.residuals) == residuals
    assert counts(passes, "sin") == (sines, 0)
    assert counts(passes, "cos") == (0, cosines)
    assert counts(passes, "dot_general") == (dots, 0)


# The residuals of f3: kind, shape and operation.
F3 = [
    ("argument", (5, 4), None),
    ("argument", (6, 5), None),
    ("argument", (7, 6), None),
    ("argument", (4,), None),
    ("computed", (5,), "dot_general"),
    ("computed", (6,), "dot_general"),
    ("computed", (7,), "dot_general"),
]


def test_f3_saves_the_values_of_its_policy():
    passes = trace(f3, *NET)
    assert collections.Counter((r.kind, r.shape, r.primitive) for r in passes.residuals) == collections.Counter(F3)
    assert passes.bytes_by_kind() == {"computed": 4 * (5 + 6 + 7), "argument": 4 * (20 + 30 + 42 + 4)}


def test_f4_saves_the_sine_named_a():
    (named,) = [r for r in trace(f4, *NET).residuals if r.kind == "computed"]
    assert (named.name, named.primitive, named.shape) == ("a", "sin", (5,))


# loss = sum((relu(x @ w1) @ w2) ** 2). The backward pass proper has a dot for each of dw2, dy, dw1 and dx: 4.
W1, W2, X = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 64), (64, 64), (256, 64)))


@pytest.mark.parametrize(
    ("function", "residuals", "dots", "recomputed_dots", "barriers"),
    [
        # w1, w2, x, relu's mask and the zeros it selects, relu's output, and twice the square's operand.
        (pipeline, 7, 4, 0, 0),
        # w1, w2, x: both dots are recomputed, for relu's mask and for the square.
        (jax.checkpoint(pipeline), 3, 6, 2, 1),
        # Also x @ w1 and relu(x @ w1) @ w2.
        (jax.checkpoint(pipeline, policy=policies.dots_with_no_batch_dims_saveable), 5, 4, 0, 1),
        # CSE allowed: the same two dots are recomputed, and no barrier stops the compiler.
        (jax.checkpoint(pipeline, prevent_cse=False), 3, 6, 2, 0),
    ],
)
def test_a_checkpoint_of_two_matmuls_saves_the_values_of_its_policy(
    function, residuals, dots, recomputed_dots, barriers
):
    passes = trace(function, W1, W2, X)
    assert len(passes.residuals) == residuals
    assert passes.backward.count("dot_general") == dots
    assert counts(passes, "dot_general") == (recomputed_dots, 0)
    assert sum(e.primitive == "optimization_barrier" for e in passes.backward.equations) == barriers


def test_no_batch_dims_saves_batched_dots_only_if_weights_are_shared():
    # vmap over x alone leaves `x @ w` a dot without batch dimensions; over the weights too, every dot has one.
    policy = policies.dots_with_no_batch_dims_saveable
    batched = [jax.ShapeDtypeStruct((3, *a.shape), a.dtype) for a in (W1, W2, X)]
    function = jax.checkpoint(pipeline, policy=policy)
    shared = trace(jax.vmap(function, (None, None, 0)), W1, W2, batched[2])
    assert counts(shared, "dot_general") == (0, 0)
    assert counts(trace(jax.vmap(function), *batched), "dot_general") == (2, 0)


# f1(f2(x)) with f2 checkpointed, recursively: of n sines, those of the first half run again in the backward pass, and
# those of the recomputed half's first half once more inside that. The halves that are not checkpointed keep nothing
# extra, so S(n) = S(n/2) for the second half + (n/2 - 1) sines to rebuild the first + S(n/2) inside it; S(2) = 0:
# S(4) = 1, S(8) = 1 + 3 + 1 = 5, S(16) = 5 + 7 + 5 = 17.
@pytest.mark.parametrize(("n", "sines", "residuals"), [(4, 1, 3), (8, 5, 4), (16, 17, 5)])
def test_a_recursive_checkpoint_saves_log_n_values(n, sines, residuals):
    passes = trace(recursive_checkpoint([jnp.sin] * n), 1.0)
    assert counts(passes, "sin") == (sines, 0)
    assert passes.forward.count("sin") == n
    assert passes.forward.count("cos") + passes.backward.count("cos") == n
    assert len(passes.residuals) == residuals


@pytest.mark.parametrize(("n", "k"), [(4, 2), (8, 2), (16, 4), (16, 16), (16, 1)])
def test_k_segments_save_k_values_and_recompute_the_rest(n, k):
    """Each of k segments of n/k sines saves its input and recomputes all its sines except the last: n - k in total."""
    passes = trace(segments(n, k), 1.0)
    assert len(passes.residuals) == k
    assert counts(passes, "sin") == (n - k, 0)
    assert passes.forward.count("sin") + passes.backward.count("sin") == 2 * n - k
    assert counts(passes, "cos") == (0, n)


def test_nested_scan_four_by_four():
    """The outer body, a scan of 4 sines, has a checkpoint: each of 4 steps saves its input and recomputes its sines."""

    def inner(x):
        return lax.scan(lambda x, _: (jnp.sin(x), None), x, None, length=4)[0]

    passes = trace(lambda x: lax.scan(jax.checkpoint(lambda x, _: (inner(x), None)), x, None, length=4)[0], 1.0)
    (residual,) = passes.residuals
    assert residual.shape == (4,)
    assert passes.forward.count("sin") == passes.backward.count("sin") == 16
    assert counts(passes, "sin") == (16, 0)
    assert counts(passes, "cos") == (0, 16)


def test_exp_saves_its_own_output():
    (residual,) = trace(jnp.exp, 1.0).residuals
    assert residual.is_output and residual.primitive == "exp"


def test_relu_saves_a_mask():
    """And an array of zeros, which the backward pass never reads."""
    mask, zeros = trace(jax.nn.relu, normal(1, 3)).residuals
    assert (mask.dtype, mask.primitive, mask.needed_by.primitive) == (jnp.bool_, "gt", "select_n")
    assert (zeros.primitive, zeros.needed_by) == ("broadcast_in_dim", None)


def test_naming_softmax_output_leaves_its_recomputation():
    """The derivative of exp uses exp's own output, which the name after softmax's division does not cover."""

    def after(x):
        return jnp.sum(zoo.checkpoint_name(jax.nn.softmax(x), "p") ** 2)

    passes = trace(jax.checkpoint(after, policy=policies.save_only_these_names("p")), normal(1, 3))
    assert counts(passes, "exp")[0] == 1


def test_a_literal_can_be_a_residual():
    (residual,) = trace(lambda x: 3.0 * x, np.float32(1)).residuals
    assert residual.kind == "constant" and residual.value.value == 3.0

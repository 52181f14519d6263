"""`R`, `L` and `B` of small programs, against counts worked out by hand."""

import functools

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from releases import since

from rematscope import trace

X = np.float32(0.5)
XS = np.linspace(0.1, 0.8, 4, dtype=np.float32)


def counts(passes, primitive):
    """Return the numbers of recomputed, deferred and backward operations of one primitive in the backward pass."""
    return tuple(passes.backward.count(primitive, role) for role in "RDB")


def backward_rule(rule):
    """A function whose backward pass is `rule(x, ct)`, and whose forward pass computes `sin(x) * cos(x)`."""

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x) * jnp.cos(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (rule(x, ct),))
    return f


def test_an_operation_with_other_operands_is_deferred():
    assert counts(trace(backward_rule(lambda x, ct: ct * jnp.sin(2 * x)), X), "sin") == (0, 1, 0)


def test_an_operation_with_other_parameters_is_deferred():
    f = jax.checkpoint(lambda x: jnp.sum(x, axis=0))
    rule = jax.custom_vjp(lambda x: jnp.sum(f(x)))
    rule.defvjp(lambda x: (rule(x), x), lambda x, ct: (ct * jnp.broadcast_to(jnp.sum(x, axis=1), x.shape),))
    passes = trace(rule, np.ones((2, 2), np.float32))
    assert counts(passes, "reduce_sum") == (0, 1, 0)


@since("0.11", "a trace keeps the NumPy arrays that a function closes over, and does not convert them to JAX's")
@pytest.mark.parametrize("change, expected", [(0, (1, 0, 0)), (1, (0, 1, 0))], ids=["equal", "different"])
def test_an_operation_of_an_equal_constant_is_recomputed(change, expected):
    """A function that converts an array it closes over makes a new one in each pass."""
    w = np.eye(4, dtype=np.float32)
    f = jax.custom_vjp(lambda x: jnp.sin(x @ w.copy()))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x @ (w + change)),))
    passes = trace(f, XS)
    assert counts(passes, "dot_general") == expected
    assert len(passes.forward.constants | passes.backward.constants) == 1 + change


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [0.1, 3, True, np.float32(0.1), np.int8(3)], ids=repr)
def test_operations_on_a_constant_argument_of_a_checkpoint_are_recomputed(scale, dtype):
    """The forward pass has a converted constant; the recompute converts an argument."""
    checkpointed = jax.checkpoint(lambda scale, x: jnp.sin(jnp.sin(x * jnp.asarray(scale).astype(x.dtype)) @ x))
    passes = trace(lambda x: checkpointed(scale, x).sum(), jax.ShapeDtypeStruct((8, 8), dtype))
    assert [counts(passes, primitive) for primitive in ("mul", "sin", "dot_general")] == [
        (1, 0, 3),
        (1, 0, 0),
        (1, 0, 2),
    ]


@pytest.mark.parametrize("scale, expected", [(0.1, (1, 0, 1)), (0.2, (0, 1, 1))], ids=["equal", "different"])
def test_a_converted_constant_equals_only_the_same_constant(scale, expected):
    f = jax.custom_vjp(lambda x: jnp.sin(x * np.float32(0.1).astype(jnp.bfloat16)))
    converted = jax.jit(lambda scale: scale.astype(jnp.bfloat16))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x * converted(np.float32(scale))),))
    passes = trace(f, jnp.bfloat16(0.5))
    assert passes.backward.count("convert_element_type") == 1
    assert counts(passes, "mul") == expected


def test_a_commuted_operation_is_recomputed():
    passes = trace(backward_rule(lambda x, ct: ct * (jnp.cos(x) * jnp.sin(x))), X)
    assert counts(passes, "mul") == (1, 0, 1)
    # Subtraction does not commute.
    f = jax.custom_vjp(lambda x: jnp.sin(x) - x)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * (x - jnp.sin(x)),))
    assert counts(trace(f, X), "sub") == (0, 1, 0)


def test_adding_zero_times_the_cotangent_is_backward():
    """`x + 0 * ct` hides a recomputation from the roles; that it does is why the judge counts total work too."""
    passes = trace(backward_rule(lambda x, ct: ct * jnp.sin(x + 0 * ct)), X)
    assert counts(passes, "sin") == (0, 0, 1)


def test_a_barrier_with_a_cotangent_makes_no_other_value_depend_on_it():
    def rule(x, ct):
        x, ct = lax.optimization_barrier((x, ct))
        return ct * jnp.sin(x) * jnp.tan(x)

    passes = trace(backward_rule(rule), X)
    assert counts(passes, "sin") == (1, 0, 0)
    assert counts(passes, "tan") == (0, 1, 0)
    assert [e.role for e in passes.backward.equations if e.primitive == "optimization_barrier"] == ["B"]


def test_a_checkpoints_barrier_makes_no_value_depend_on_the_cotangent():
    """Two operands are saved, x and y. The derivative of the multiplication needs both factors."""
    passes = trace(jax.checkpoint(lambda x, y: jnp.sin(x) * jnp.exp(y)), X, X)
    # d(sin x · exp y) = cos x · exp y · dx + sin x · exp y · dy.
    assert counts(passes, "sin") == (1, 0, 0)
    assert counts(passes, "exp") == (1, 0, 0)
    assert counts(passes, "cos") == (0, 1, 0)


def test_names_are_transparent():
    name = jax.ad_checkpoint.checkpoint_name
    passes = trace(jax.checkpoint(lambda x: jnp.sin(name(jnp.sin(name(x, "x")), "y"))), X)
    assert counts(passes, "sin") == (1, 0, 0)
    # Names are not counted as operations.
    assert "name" not in {e.primitive for e, _ in passes.backward.walk()}


def test_fetching_from_the_host_recomputes_nothing():
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["y"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def f(x):
        return jnp.sin(jax.ad_checkpoint.checkpoint_name(jnp.sin(jnp.sin(x)), "y"))

    passes = trace(jax.checkpoint(f, policy=policy), X)
    # sin(sin x) is fetched from the host, and its cos is deferred. cos(sin x) needs sin x, which is recomputed.
    assert counts(passes, "device_put") == (0, 1, 0)
    assert counts(passes, "sin") == (1, 0, 0)
    assert counts(passes, "cos") == (0, 3, 0)
    assert {r.memory for r in passes.residuals} == {"device", "host"}


def test_operations_after_a_fetch_from_the_host_can_be_recomputed():
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    f = jax.checkpoint(lambda w, x: jnp.sum(jnp.sin(jnp.sin(w @ x))), policy=policy)
    # The inner sine of the fetched matmul is that of the forward pass.
    assert counts(trace(f, np.ones((3, 3), np.float32), np.ones(3, np.float32)), "sin") == (1, 0, 0)


# Loops.


def test_a_checkpoint_of_a_scan_recomputes_the_scan():
    """Only x is saved. The scan is recomputed for the carries: sin in each of 5 steps. Its cosines are deferred."""
    f = jax.checkpoint(lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=5)[0])
    passes = trace(f, X)
    assert [r.kind for r in passes.residuals] == ["argument"]
    assert counts(passes, "sin") == (5, 0, 0)
    assert counts(passes, "cos") == (0, 5, 0)


def test_a_loop_has_the_role_of_its_operations():
    f = jax.checkpoint(
        lambda x: jnp.sin(lax.scan(lambda c, _: (jnp.tan(c), None), lax.stop_gradient(x), None, 3)[0]) * x
    )
    roles = [e.role for e in trace(f, X).backward.equations if e.primitive == "scan"]
    assert roles == ["R"]


def scan_twice(forward_step, backward_step, carries, xs=None, n=3):
    """Scans `forward_step` in the forward pass and `backward_step` in the backward pass, from the same start."""

    @jax.custom_vjp
    def f(start, xs):
        return sum(lax.scan(forward_step, start, xs, length=n)[0])

    def backward(saved, ct):
        start, xs = saved
        total = sum(lax.scan(backward_step, start, xs, length=n)[0])
        return jax.tree.map(lambda x: ct * total * jnp.ones_like(x), (start, xs))

    f.defvjp(lambda *saved: (f(*saved), saved), backward)
    return trace(lambda x, xs: f((x,) * carries, xs), X, xs)


def test_the_same_scan_is_recomputed():
    def step(carry, _):
        x, y = carry
        return (jnp.sin(x) + y, jnp.cos(y)), None

    passes = scan_twice(step, step, 2)
    assert counts(passes, "sin") == counts(passes, "cos") == (3, 0, 0)


def test_carries_that_start_equal_and_evolve_differently_are_distinguished():
    passes = scan_twice(
        lambda c, _: ((jnp.sin(c[0]), jnp.cos(c[1])), None), lambda c, _: ((jnp.sin(c[1]), jnp.cos(c[0])), None), 2
    )
    # x' = sin y, y' = cos x is another system than x' = sin x, y' = cos y; only its first step would be the same.
    assert counts(passes, "sin") == counts(passes, "cos") == (0, 3, 0)


def test_a_carry_that_reads_another_carry_is_distinguished_by_it():
    """x' = x + y + sin x in both, but y' = 2 y in one and 3 y in the other: x differs from the third step on."""

    def step(factor, carry, _):
        x, y = carry
        return (x + y + jnp.sin(x), factor * y), None

    passes = scan_twice(functools.partial(step, 2), functools.partial(step, 3), 2)
    assert counts(passes, "sin") == (0, 3, 0)
    passes = scan_twice(functools.partial(step, 2), functools.partial(step, 2), 2)
    assert counts(passes, "sin") == (3, 0, 0)


def test_carries_that_swap_places_are_distinguished():
    """(a, b, c) → (b, c, c + 1) from equal starts: a, b and c agree at first and differ later."""

    def step(read, carry, _):
        _, b, c = carry
        return (b + 0 * jnp.sin(carry[read]), c, c + 1), None

    for read in range(3):
        passes = scan_twice(functools.partial(step, 0), functools.partial(step, read), 3)
        assert counts(passes, "sin") == ((3, 0, 0) if read == 0 else (0, 3, 0))


def test_an_independent_carry_is_recomputed_although_another_carry_is_not():
    passes = scan_twice(
        lambda c, _: ((jnp.sin(c[0]), jnp.cos(c[1])), None), lambda c, _: ((jnp.sin(c[0]), jnp.tan(c[1])), None), 2
    )
    assert counts(passes, "sin") == (3, 0, 0)
    assert counts(passes, "tan") == (0, 3, 0)


@pytest.mark.parametrize(("reverse", "expected"), [(False, (4, 0, 0)), (True, (0, 4, 0))])
def test_a_scan_in_the_other_direction_is_another_scan(reverse, expected):
    def scanned(c, xs, reverse):
        return lax.scan(lambda c, x: (jnp.sin(c * x), None), c, xs, reverse=reverse)[0]

    f = jax.custom_vjp(lambda c, xs: scanned(c, xs, False))
    f.defvjp(
        lambda c, xs: (f(c, xs), (c, xs)),
        lambda saved, ct: (ct * scanned(*saved, reverse), ct * saved[1]),
    )
    assert counts(trace(f, X, XS), "sin") == expected


def test_a_slice_of_a_stack_equals_the_stacked_value():
    """The backward pass reads xs at position i whichever way its loop runs: sin(x_i) was computed before."""

    @jax.custom_vjp
    def f(xs):
        return jnp.sum(lax.scan(lambda c, x: (c, jnp.sin(x)), 0.0, xs)[1])

    def backward(saved, ct):
        return (lax.scan(lambda c, xy: (c, ct * jnp.sin(xy[0]) * jnp.cos(xy[1])), 0.0, saved, reverse=True)[1],)

    f.defvjp(lambda xs: (f(xs), (xs, jnp.sin(xs))), backward)
    passes = trace(f, XS)
    assert counts(passes, "sin") == (4, 0, 0)
    assert counts(passes, "cos") == (0, 4, 0)


@pytest.mark.parametrize(("outer", "expected"), [(True, (16, 0, 0)), (False, (0, 16, 0))])
def test_two_loops_of_one_length_are_not_confused(outer, expected):
    """sin(x_i) was computed in a loop over i. In a nest of loops over i and j it is recomputed, and sin(x_j) is not."""

    @jax.custom_vjp
    def f(xs):
        return jnp.sum(lax.scan(lambda c, x: (c, jnp.sin(x)), 0.0, xs)[1])

    def backward(xs, ct):
        def row(c, xi):
            return c, jnp.sum(lax.scan(lambda c, xj: (c, jnp.sin(xi if outer else xj) * xj * ct), 0.0, xs)[1])

        return (lax.scan(row, 0.0, xs)[1],)

    f.defvjp(lambda xs: (f(xs), xs), backward)
    assert counts(trace(f, XS), "sin") == expected


def test_the_index_of_a_stack_is_the_loop_that_made_it():
    """Stacks s_i = sin(x_i), read in both loops of a nest: s_i · s_j is an outer product, not a square."""

    @jax.custom_vjp
    def f(xs):
        return jnp.sum(lax.scan(lambda c, x: (c, jnp.sin(x) * jnp.sin(x)), 0.0, xs)[1])

    def backward(xs, ct):
        sines = lax.scan(lambda c, x: (c, jnp.sin(x)), 0.0, xs)[1]

        def row(c, si):
            return c, jnp.sum(lax.scan(lambda c, sj: (c, si * sj), 0.0, sines)[1])

        return (ct * lax.scan(row, 0.0, sines)[1],)

    f.defvjp(lambda xs: (f(xs), xs), backward)
    passes = trace(f, XS)
    assert counts(passes, "sin") == (4, 0, 0)
    # The 16 values s_i s_j are new. One multiplication by ct belongs to the backward pass.
    assert counts(passes, "mul") == (0, 16, 1)


def test_a_value_that_only_the_backward_scan_computes_is_deferred():
    """tan of the carry appears in no forward pass; the carry itself, read from a stack, is not computed at all."""

    @jax.custom_vjp
    def step(c):
        return jnp.sin(c)

    step.defvjp(lambda c: (step(c), c), lambda c, ct: (ct * jnp.tan(c),))
    passes = trace(lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=3)[0], X)
    assert counts(passes, "tan") == (0, 3, 0)
    assert passes.backward.count(role="R") == 0


def test_a_carry_that_reads_the_cotangent_in_a_later_iteration_is_backward_in_all():
    """c starts independent of the cotangent and reads it from the second step on: the fixpoint finds that."""

    def backward(x, ct):
        def step(carry, _):
            c, d = carry
            return (jnp.tan(c) + d, d + ct), None

        return (lax.scan(step, (x, 0 * x), None, length=3)[0][0],)

    f = jax.custom_vjp(lambda x: jnp.sin(x))
    f.defvjp(lambda x: (f(x), x), backward)
    assert counts(trace(f, X), "tan") == (0, 0, 3)


def test_both_branches_of_a_checkpoint_are_recomputed():
    """The predicate is an argument. Both branches are recomputed: sin is in the forward pass, its cosine is not."""

    @jax.checkpoint
    def f(p, x):
        return lax.cond(p, lambda x: jnp.sin(jnp.sin(x)), lambda x: x * x, x)

    passes = trace(f, True, X)
    assert counts(passes, "sin") == (1, 0, 0)
    assert counts(passes, "cos") == (0, 2, 0)


# Effects.


def test_a_print_runs_twice_and_has_no_value_to_compare():
    @jax.checkpoint
    def f(x):
        jax.debug.print("{}", x)
        return jnp.sin(jnp.sin(x))

    passes = trace(f, X)
    (printed,) = [e for e in passes.backward.equations if "debug" in e.primitive]
    assert printed.role == "D"
    assert counts(passes, "sin") == (1, 0, 0)


def test_two_calls_of_a_callback_never_return_the_same_value():
    def drawn(x):
        return io_callback(np.random.standard_normal, jax.ShapeDtypeStruct((), np.float32))

    f = jax.custom_vjp(lambda x: jnp.sin(x) + drawn(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * drawn(x),))
    assert counts(trace(f, X), "io_callback") == (0, 1, 0)


def test_printing_a_cotangent_is_backward():
    def rule(x, ct):
        jax.debug.print("{}", ct)
        return ct

    (printed,) = [e for e in trace(backward_rule(rule), X).backward.equations if "debug" in e.primitive]
    assert printed.role == "B"


def test_a_random_draw_with_the_same_key_is_recomputed():
    @jax.checkpoint
    def f(x, key):
        return jnp.sin(x * jax.random.uniform(key, x.shape))

    passes = trace(f, XS, jax.random.key(0))
    assert counts(passes, "random_bits") == (1, 0, 0)


# The originals of recomputed values.


def test_a_recomputed_value_names_its_original():
    passes = trace(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), X)
    (again,) = [e for e in passes.backward.equations if e.primitive == "sin"]
    first = next(e for e in passes.forward.equations if e.primitive == "sin")
    assert passes.forward_value_of[again.outputs[0]] is first.outputs[0]


def test_a_value_that_only_a_branch_computed_is_not_recomputed_outside_of_it():
    def f(p, x):
        # The branch has cos(x), if it is taken; the checkpoint's backward pass computes cos(x) whatever p is.
        y = jax.lax.cond(p > 0, jnp.cos, lambda x: x, x)
        return y + jax.checkpoint(jnp.sin)(x)

    backward = trace(f, 1.0, 2.0).backward
    outside = [e for e in backward.equations if e.primitive == "cos"]
    assert outside and all(e.role == "D" for e in outside)

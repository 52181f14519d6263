"""Checks of invariants that hold for every function that can be traced."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.ad_checkpoint import saved_residuals  # private: JAX's own opinion, used in tests only

from rematscope import Literal, Program, SideBySide, Trace, Value, jax_compat, trace

FLOAT0 = jax.dtypes.float0


def concrete(tree, seed=0):
    """Arrays in place of `ShapeDtypeStruct`s and of Python scalars, whose residuals JAX would hide."""
    rng = np.random.default_rng(seed)

    def array(leaf):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype)
        return jnp.asarray(leaf)

    return jax.tree.map(array, tree)


def flattened(case):
    """(the case's function of a flat list of arrays, that list)."""
    leaves, tree = jax.tree.flatten(concrete((case.args, case.kwargs)))

    def flat(*leaves):
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return case.function(*args, **kwargs)

    return flat, leaves


def random_cotangents(outputs, seed=1):
    """One for each output: random where it is inexact, `float0` elsewhere."""
    rng = np.random.default_rng(seed)

    def cotangent(out):
        if not jnp.issubdtype(out.dtype, np.inexact):
            return np.zeros(out.shape, FLOAT0)
        drawn = rng.standard_normal(out.shape)
        if jnp.issubdtype(out.dtype, np.complexfloating):
            drawn = drawn + 1j * rng.standard_normal(out.shape)
        return jnp.asarray(drawn, out.dtype)

    return jax.tree.map(cotangent, outputs)


# Structure.


def types(values) -> list[tuple]:
    return [(tuple(v.shape), np.dtype(v.dtype) if v.dtype == FLOAT0 else v.dtype) for v in values]


def assert_residuals_are_the_leaves_of_vjp(passes: Trace, flat, leaves):
    """One residual for each leaf of the pullback that `jax.vjp` itself returns when it is traced."""
    pullback = jax.eval_shape(lambda *leaves: jax.vjp(flat, *leaves)[1], *leaves)
    assert types(passes.residuals) == types(jax.tree.leaves(pullback))


def assert_residuals_are_jax_saved_residuals(passes: Trace, flat, leaves):
    """Return the types in `print_saved_residuals`, which lists a value once even if it is saved several times."""
    once = {r.value: r for r in passes.residuals}.values()
    theirs = [aval for aval, _ in saved_residuals(flat, *leaves)]
    assert collections.Counter(types(once)) == collections.Counter(types(theirs))


def assert_closed(program: Program):
    """Every value is defined once, before it is read, and nothing is read that is not given."""
    assert_no_gaps(program, set(program.constants))


def assert_no_gaps(program: Program, known: set[Value]):
    """Adds to `known` what `program` defines; what a body defines is known only there."""
    for value in program.inputs:
        # A residual may be a constant or a literal, or be saved twice.
        assert value not in known or value in program.constants or program.inputs.count(value) > 1
    known = known | set(program.inputs)

    def readable(value):
        return isinstance(value, Literal) or value in known

    for equation in program.equations:
        assert all(map(readable, equation.inputs)), equation
        for body in equation.bodies:
            assert_no_gaps(body, known)
        if equation.primitive == "optimization_barrier":
            assert equation.outputs == equation.inputs != ()
        else:
            assert known.isdisjoint(equation.outputs), equation
            assert len(set(equation.outputs)) == len(equation.outputs)
            known |= set(equation.outputs)
    assert all(map(readable, program.outputs))


def defined(program: Program) -> list[Value]:
    """Return the values that `program` and its bodies define, including the inputs of the bodies."""
    found = []
    for equation in program.equations:
        if equation.primitive != "optimization_barrier":
            found += equation.outputs
        for body in equation.bodies:
            found += [*body.inputs, *defined(body)]
    return found


def assert_structure(passes: Trace):
    for program in (passes.forward, passes.backward):
        assert_closed(program)
    everywhere = defined(passes.forward) + defined(passes.backward)
    assert len(everywhere) == len(set(everywhere))

    crossing = [r.value for r in passes.residuals]
    given = [v for v in passes.backward.inputs if not isinstance(v, Literal)]
    assert list(passes.backward.inputs) == [*crossing, *passes.cotangents]
    assert set(given).isdisjoint(defined(passes.backward))
    assert list(passes.forward.outputs[len(passes.forward.outputs) - len(crossing) :]) == crossing
    for r in passes.residuals:
        # `stop_gradient` of an argument or a constant is this argument or constant.
        assert (r.kind == "argument") == (r.array in passes.forward.inputs)
        assert (r.kind == "computed") == (r.array in defined(passes.forward))
        assert (r.primitive is not None) == (r.kind == "computed")
    for equation, _ in passes.backward.walk():
        assert equation.role in ("R", "D", "B")
    for equation, _ in passes.forward.walk():
        assert equation.role == ""


# Values.


def assert_same_numbers(passes: Trace, flat, leaves, transform=jax.jit):
    """Forward, then backward on what forward returned, gives the values and gradients of `jax.vjp`."""
    shapes = jax.eval_shape(flat, *leaves)
    cotangents = random_cotangents(shapes)

    def reference(*leaves):
        out, pullback = jax.vjp(flat, *leaves)
        return jax.tree.leaves(out), visible(pullback(cotangents))

    def mine(*leaves):
        results = passes.forward(*leaves)
        outputs = results[: len(passes.cotangents)]
        residuals = results[len(passes.cotangents) :]
        return outputs, visible(passes.backward(*residuals, *jax.tree.leaves(cotangents)))

    # One compilation for both takes half the time of two.
    got, expected = transform(lambda *leaves: (mine(*leaves), reference(*leaves)))(*leaves)
    assert_equal_trees(got, expected)


def visible(gradients):
    """Return the cotangents of floating-point arguments."""
    return [None if g.dtype == FLOAT0 else g for g in gradients]


def assert_equal_trees(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_equal_arrays(a, b)


def assert_equal_arrays(a, b, ulps=64):
    assert a.dtype == b.dtype and a.shape == b.shape
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    if not jnp.issubdtype(a.dtype, np.inexact):
        np.testing.assert_array_equal(a, b)
        return
    tolerance = ulps * float(jnp.finfo(a.dtype).eps)
    wide = np.complex128 if jnp.issubdtype(a.dtype, np.complexfloating) else np.float64
    a, b = np.asarray(a).astype(wide), np.asarray(b).astype(wide)
    largest = np.max(np.abs(b[np.isfinite(b)]), initial=0.0)
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * largest)


# Roles, by watching both programs run.


def watch(program: Program, arrays) -> dict[Value, dict[tuple, jax.Array]]:
    """Run `program` one operation at a time, and return each value by the indices of the loops around it.

    An index is identified by its loop's length and the number of loops of that length around it, as in
    `rematscope.ir.value_numbering`: the backward pass may have one more loop around the same loop, or two loops in
    reverse order. The index of a `while` is identified by its depth.
    """
    seen = collections.defaultdict(dict)
    _record_values(program, arrays, (), dict(program.constants), seen)
    return seen


def _record_values(program, arrays, at, env, seen):
    def define(values, arrays):
        for value, array in zip(values, arrays, strict=True):
            if not isinstance(value, Literal):
                env[value] = seen[value][at] = array

    def read(value):
        return jnp.asarray(value.value, value.dtype) if isinstance(value, Literal) else env[value]

    define(program.inputs, arrays)
    for equation in program.equations:
        operands = list(map(read, equation.inputs))
        match equation.primitive:
            case "name" | "optimization_barrier":
                results = operands
            case "scan":
                results = _watch_scan(equation, operands, at, env, seen)
            case "while":
                condition, body = equation.bodies
                results, i = operands[equation.first_carry :], 0
                index = "while", len(at)
                while _record_values(condition, results, (*at, (index, i)), dict(env), seen)[0]:
                    results = _record_values(body, results, (*at, (index, i)), dict(env), seen)
                    i += 1
            case "cond":
                taken = np.clip(int(operands[0]), 0, len(equation.bodies) - 1)
                results = _record_values(equation.bodies[taken], (), at, dict(env), seen)
            case _:
                results = jax_compat.run(equation.eqn, operands)
        define(equation.outputs, results)
    return list(map(read, program.outputs))


def _watch_scan(equation, operands, at, env, seen):
    (body,) = equation.bodies
    start, stop = equation.first_carry, equation.first_carry + equation.carries
    carry, stacks = operands[start:stop], operands[stop:]
    rows = [None] * equation.length
    indices = range(equation.length)
    index = equation.length, sum(length == equation.length for (length, _), _ in at)
    for i in reversed(indices) if equation.params["reverse"] else indices:
        out = _record_values(body, [*carry, *(a[i] for a in stacks)], (*at, (index, i)), dict(env), seen)
        carry, rows[i] = out[: equation.carries], out[equation.carries :]
    return [*carry, *(jnp.stack(column) for column in zip(*rows, strict=True))]


def assert_roles_are_true(passes: Trace, leaves):
    """R equals the forward value that it stands for; R and L do not change with the cotangent."""
    early = [e for e, _ in passes.backward.walk() if e.role != "B"]
    if not early:
        return  # nothing runs before the cotangent is needed, so no value is claimed to be known
    shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in passes.cotangents]
    shapes = [jax.ShapeDtypeStruct(s.shape, np.int8) if s.dtype == FLOAT0 else s for s in shapes]
    before = watch(passes.forward, leaves)
    residuals = passes.forward(*leaves)[len(shapes) :]
    after, other = (watch(passes.backward, [*residuals, *random_cotangents(shapes, seed)]) for seed in (1, 2))

    for value, forward_value in passes.forward_value_of.items():
        assert value.shape == forward_value.shape and value.dtype == forward_value.dtype
        for at, array in after[value].items():
            for where, original in before[forward_value].items():
                if all(dict(at).get(index, i) == i for index, i in where):
                    assert_equal_arrays(array, original)
    for equation in early:
        assert equation.role != "R" or not passes.forward_value_of.keys().isdisjoint(equation.outputs)
        for value in equation.outputs:
            for at, array in after[value].items():
                assert_equal_arrays(array, other[value][at], ulps=0)


def as_by_default(case, passes: Trace) -> bool:
    """With `JAX_REMAT3`, whether these are the programs that JAX makes without it: those run in another process."""
    if not jax_compat.remat3():
        return False
    with jax_compat.use_remat3(False):
        return str(SideBySide(trace(case.function, *case.args, **case.kwargs))) == str(SideBySide(passes))


def check(case, passes: Trace, transform=jax.jit):
    """All of the above."""
    flat, leaves = flattened(case)
    assert_residuals_are_the_leaves_of_vjp(passes, flat, leaves)
    assert_structure(passes)
    if as_by_default(case, passes):
        return
    assert_same_numbers(passes, flat, leaves, transform)
    assert_roles_are_true(passes, leaves)

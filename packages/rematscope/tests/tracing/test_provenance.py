"""Name, operation and source line of a residual, found where JAX's own account gives up."""

import contextlib
import inspect
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from jax import lax
from jax.ad_checkpoint import checkpoint_name, print_saved_residuals
from releases import since

from rematscope import trace

X = np.float32(0.5)
XS = np.ones(3, np.float32)
save_y = jax.checkpoint_policies.save_only_these_names("y")


def line_of(function, text):
    """The number, in this file, of the line of `function` that holds `text`."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [first + i for i, line in enumerate(lines) if text in line and "line_of" not in line]
    return found


def marked(x):
    x = jnp.tan(x)
    return checkpoint_name(jnp.sin(jnp.sin(x)), "y")  # marked


def computed(function, *args):
    """(name, primitive, source) of the residuals that are neither arguments nor constants."""
    residuals = trace(function, *args).residuals
    return [(r.name, r.primitive, str(r.source)) for r in residuals if r.kind == "computed"]


def jax_says(function, *args):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_saved_residuals(function, *args)
    return out.getvalue()


MARKED = ("y", "sin", f"test_provenance.py:{line_of(marked, '# marked')} (marked)")


@jax.checkpoint
def squared(x):
    return x * x


def in_scan(x):
    body = jax.checkpoint(lambda c, _: (jnp.cos(marked(c)), None), policy=save_y)
    return lax.scan(body, x, None, length=3)[0]


def in_nested_scan(x):
    body = jax.checkpoint(lambda c, _: (jnp.cos(marked(c)), None), policy=save_y)
    return lax.scan(lambda c, _: (lax.scan(body, c, None, length=3)[0], None), x, None, length=2)[0]


def in_cond(x):
    body = jax.checkpoint(lambda c: jnp.cos(marked(c)), policy=save_y)
    return lax.cond(x > 0, body, lambda c: c, x)


@pytest.mark.parametrize(
    "function",
    [
        jax.checkpoint(lambda x: jnp.cos(marked(x)), policy=save_y),
        jax.checkpoint(jax.jit(lambda x: jnp.cos(jax.jit(marked)(x))), policy=save_y),
        jax.jit(jax.checkpoint(lambda x: jnp.cos(marked(x)), policy=save_y)),
        # An outer checkpoint overrides an inner policy; its own then decides.
        jax.checkpoint(lambda x: jax.checkpoint(lambda x: jnp.cos(marked(x)))(x), policy=save_y),
        jax.vmap(jax.checkpoint(lambda x: jnp.cos(marked(x)), policy=save_y)),
    ],
    ids=["checkpoint", "jit inside", "jit outside", "nested checkpoint", "vmap"],
)
def test_a_named_residual(function):
    assert computed(function, XS) == [MARKED]


@pytest.mark.parametrize("function", [in_scan, in_nested_scan])
def test_a_named_residual_of_a_scan(function):
    """JAX reports "output of scan". Each step also saves its carry, a cosine that the previous step computed."""
    found = computed(function, X)
    assert MARKED in found and len(found) == 2
    (carry,) = [f for f in found if f != MARKED]
    line = line_of(function, "jnp.cos(marked(c))")
    assert carry == (None, "cos", f"test_provenance.py:{line} (<lambda>)")
    assert "'y'" not in jax_says(function, X) and "output of scan" in jax_says(function, X)


def test_a_named_residual_of_a_branch():
    """A branch not taken gives zeros in its place; the residual is known by the branch that makes it."""
    assert MARKED in computed(in_cond, X)


BRANCHES = [jnp.sin, jnp.exp, jnp.cos]


def switched(i, x):
    return lax.switch(i, BRANCHES, x)  # switched


def switched_between_two(i, x):
    return lax.switch(i, BRANCHES[:2], x)  # switched


def chosen(i, x):
    return lax.cond(i > 0, *BRANCHES[:2], x)  # switched


def switched_in_scan(i, x):
    return lax.scan(lambda x, _: (lax.switch(i, BRANCHES, x), None), x, None, length=3)[0]  # switched


@since("0.10", "a function of JAX's own is traced anew for each line that calls it, and not known by the first of them")
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["", "jit"])
@pytest.mark.parametrize("function", [switched, switched_between_two, chosen, switched_in_scan])
def test_every_residual_of_a_branch_has_the_line_that_makes_it(function, transform):
    """A branch that is JAX's own function has no line of the user's in it: the line that chooses it is theirs."""
    found = computed(transform(function), 1, XS)
    line = line_of(function, "# switched")
    caller = "<lambda>" if function is switched_in_scan else function.__name__
    assert {where for _, _, where in found} == {f"test_provenance.py:{line} ({caller})"}
    # The predicate, and the operand of the derivative: a sine, because its branch is the first.
    assert len(found) == 2 and found[1][1] in ("cos", "exp")


def test_a_residual_that_only_one_branch_makes_has_that_branch_s_line():
    def f(i, x):
        return lax.switch(i, [lambda x: x, lambda x: jnp.sin(x)], x)  # the only sine

    line = line_of(f, "# the only sine")
    assert (None, "cos", f"test_provenance.py:{line} (<lambda>)") in computed(f, 1, XS)


def test_a_residual_of_a_jitted_function():
    def f(x):
        return jax.jit(lambda x: jnp.sin(jnp.sin(x)))(x)

    where = f"test_provenance.py:{line_of(f, 'jax.jit')} (<lambda>)"
    assert set(computed(f, X)) == {(None, "cos", where)}


def test_a_residual_of_a_custom_jvp():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvps(lambda t, out, x: t * jnp.exp(x))  # the rule

    line = line_of(test_a_residual_of_a_custom_jvp, "# the rule")
    assert computed(f, X) == [(None, "exp", f"test_provenance.py:{line} (<lambda>)")]


def custom_vjp():
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def forward(x):
        return jnp.sin(x), {"of": (jnp.exp(x), None)}  # kept

    f.defvjp(forward, lambda kept, ct: (ct * kept["of"][0],))
    return f


def test_a_residual_of_a_custom_vjp():
    line = line_of(custom_vjp, "# kept")
    assert computed(custom_vjp(), X) == [(None, "exp", f"test_provenance.py:{line} (forward)")]


def test_a_residual_of_a_custom_vjp_in_a_scan():
    """Here, JAX records the line that calls the function, not the operation's line in its rule."""

    def f(x):
        g = custom_vjp()
        return lax.scan(lambda c, _: (g(c), None), x, None, length=3)[0]

    assert computed(f, X) == [(None, "exp", f"test_provenance.py:{line_of(f, 'g(c)')} (<lambda>)")]


def test_a_slice_of_an_argument_and_a_stack_of_carries():
    """Scanned weights are an argument. The residual of the steps is a stack of the previous steps' results."""

    def f(ws, x):
        return lax.scan(jax.checkpoint(lambda x, w: (jnp.tanh(w * x), None)), x, ws)[0]

    found = {r.value.name: (r.kind, r.primitive, r.shape) for r in trace(f, XS, X).residuals}
    assert found["ws"] == ("argument", None, (3,))
    assert ("computed", "tanh", (3,)) in found.values()


def test_the_reader_of_a_residual_in_a_loop_is_an_operation_of_the_body():
    """The operation inside the loop, not the loop."""
    readers = {
        r.value.name: r.needed_by.primitive for r in trace(lambda w, x: in_scan_of_products(w, x), X, X).residuals
    }
    assert readers["w"] == "mul"
    assert "scan" not in readers.values()


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.everything_saveable], ids=["default", "everything"])
@pytest.mark.parametrize(
    "body", [lambda w, c: jnp.sin(c @ w), lambda w, c: lax.cond(c[0, 0] > 0, jnp.sin, jnp.tanh, c @ w)]
)
def test_a_residual_that_loops_copy_is_read_where_its_copy_is(body, policy):
    """A residual without a reader has no influence: with NaN in its place, the gradients are the same."""
    f = jax.checkpoint(lambda ws, x: lax.scan(lambda c, w: (body(w, c), None), x, ws)[0], policy=policy)
    ws, x = (np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in [(3, 4, 4), (4, 4)])
    passes = trace(f, ws, x)
    value, *residuals = passes.forward(ws, x)
    expected = passes.backward(*residuals, np.ones_like(value))
    for i, residual in enumerate(passes.residuals):
        if np.issubdtype(residual.dtype, np.floating):
            spoiled = [np.full_like(v, np.nan) if k == i else v for k, v in enumerate(residuals)]
            found = passes.backward(*spoiled, np.ones_like(value))
            same = all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))
            assert same == (residual.needed_by is None), residual


@pytest.mark.parametrize("first", [True, False], ids=["first branch", "second branch"])
def test_the_reader_of_a_residual_that_a_branch_copies_reads_the_result_of_the_branch(first):
    policy = jax.checkpoint_policies.save_only_these_names("copied")

    def f(y, x):
        branches = [lambda y: y, jnp.ones_like]
        return jnp.tanh(
            lax.cond(x > 0, *(branches if first else branches[::-1]), checkpoint_name(jnp.exp(y), "copied"))
        )

    residuals = trace(jax.checkpoint(f, policy=policy), X, 1.0).residuals
    assert [r.needed_by.primitive for r in residuals if r.kind == "computed"] == ["tanh"]


def test_the_reader_of_a_predicate_is_its_branch():
    residuals = trace(lambda x: lax.cond(jnp.sum(x) > 0, jnp.sin, jnp.exp, x), XS).residuals
    assert [r.needed_by.primitive for r in residuals] == ["cond", "mul"]


def in_scan_of_products(w, x):
    return lax.scan(lambda c, _: (jnp.sin(w * c), None), x, None, length=3)[0]


def test_arguments_are_named_as_the_function_names_them():
    def f(params, *rest, scale, **others):
        return jnp.sin(params["w"] * rest[0] * rest[1]["x"] * scale * others["shift"][0])

    passes = trace(f, {"w": X}, X, {"x": X}, scale=X, shift=(X,))
    # Positional arguments in their order, then keywords in the order of their names.
    assert [v.name for v in passes.forward.inputs] == ["params.w", "rest[0]", "rest[1].x", "scale", "shift.0"]


def test_constants_are_constants():
    table = jnp.arange(3.0)
    (residual,) = trace(lambda x: table * x, XS).residuals
    assert (residual.kind, residual.name, residual.primitive, residual.source) == ("constant", None, None, None)


def test_outputs_are_marked():
    residuals = trace(lambda x: (jnp.exp(x), jnp.sin(x)), X).residuals
    assert {(r.primitive, r.is_output) for r in residuals} == {("exp", True), ("cos", False)}


@pytest.fixture
def shell():
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


def test_a_line_of_a_notebook_cell_is_known_by_its_prompt(shell):
    """IPython compiles a cell under the name of a temporary file; a reader knows it by its prompt."""
    shell.run_cell("import jax, jax.numpy as jnp\nfrom rematscope import trace", store_history=True)
    first = "def g(x):\n    y = jnp.tan(x)\n    return jnp.sin(y)\n"
    shell.run_cell(first, store_history=True).raise_error()
    shell.run_cell("residuals = trace(lambda x: jnp.exp(g(x)), 0.5).residuals", store_history=True).raise_error()

    found = {r.primitive: str(r.source) for r in shell.user_ns["residuals"]}
    assert found["cos"] == "In [2], line 3 (g)"
    assert found["exp"] == "In [3], line 1 (<lambda>)"


def test_an_argument_under_stop_gradient_is_saved_as_the_argument():
    def frozen(w, x, scale):
        return jnp.tanh(lax.stop_gradient(w) @ x) * lax.stop_gradient(scale), jnp.sin(w) @ x

    traced = trace(frozen, np.eye(3, dtype=np.float32), XS, X)
    kinds = {r.array.name: r.kind for r in traced.residuals}
    assert kinds["w"] == kinds["scale"] == "argument"
    assert traced.bytes_by_kind()["argument"] == 4 * (9 + 3 + 1)  # `w` once, although it is also saved as itself


def test_a_value_under_stop_gradient_has_the_origin_of_the_value():
    def frozen(w):
        return lax.stop_gradient(marked(w)) * w  # marked

    assert [(name, primitive) for name, primitive, _ in computed(frozen, XS)] == [("y", "sin")]


def test_a_residual_is_displayed_in_one_line():
    shown = [repr(residual) for residual in trace(jax.checkpoint(lambda x: marked(x) ** 2, policy=save_y), X).residuals]
    line = f"test_provenance.py:{line_of(marked, '# marked')}"
    assert sorted(shown, reverse=True) == [
        "<x:f32[], 4 bytes, argument>",
        f"<d:f32[], 4 bytes, computed by sin on {line}, named 'y'>",
    ]

"""Operations of a library have a module, from JAX's name stack, and the user's line that calls the library."""

import importlib
import inspect
import re
import sys

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx
from jax.ad_checkpoint import checkpoint_name
from releases import since

from rematscope import SideBySide, lint, liveness, plan, residual_table, trace
from rematscope.render.view import plain_text

X = jax.ShapeDtypeStruct((2, 8), jnp.float32)


class Block(linen.Module):
    """A layer of two lines; the first line calls the library twice."""

    @linen.compact
    def __call__(self, x):
        y = linen.Dense(8, name="down")(jnp.tanh(linen.Dense(16, name="up")(x)))  # twice
        return x + checkpoint_name(y, "y")


class Net(linen.Module):
    layers: int = 3

    @linen.compact
    def __call__(self, x):
        for i in range(self.layers):
            x = Block(name=f"layers_{i}")(x)
        return jnp.sum(jnp.sin(x))


def line_of(owner, text):
    lines, first = inspect.getsourcelines(owner)
    (found,) = [first + i for i, line in enumerate(lines) if text in line]
    return f"{__name__.rpartition('.')[2]}.py:{found}"


CALLS = line_of(Block, "# twice")
NET = Net().apply, jax.eval_shape(Net().init, jax.random.key(0), X), X


def both_passes(f, *args):
    passes = trace(f, *args)
    return [equation for program in (passes.forward, passes.backward) for equation, _ in program.walk()]


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.checkpoint, jax.jit], ids=["plain", "checkpoint", "jit"])
def test_modules_and_callers_are_known_in_both_passes(wrapped):
    f, *args = NET
    products = [e for e in both_passes(wrapped(lambda v, x: f(v, x)), *args) if e.primitive == "dot_general"]
    known = {f"Net/layers_{i}/{name}" for i in range(3) for name in ("up", "down")}
    assert {e.module for e in products} == known
    assert {e.source.caller.where for e in products} == {CALLS} == {e.source.users.where for e in products}
    assert all(e.source.where == f"{CALLS} → linear.py:{e.source.line}" for e in products)


def test_like_layers_share_a_row_and_others_on_their_line_do_not():
    rows = [row for row in residual_table(*NET).rows if row.kind == "computed"]
    modules = [row.module for row in rows]
    assert "Net/layers_0…2/up" in modules or "Net/layers_0…2" in modules
    assert all("down" not in m or "up" not in m for m in modules)
    assert sum(len(row.values) for row in rows) == len({r.array for r in trace(*NET).residuals if r.kind == "computed"})


@pytest.mark.slow
def test_every_view_says_them():
    f, *args = NET
    programs = SideBySide(trace(f, *args))
    page = re.sub("</?span[^>]*>", "", programs.html())
    for shown in (plain_text(programs, 200), page):
        assert "# Net/layers_0/up" in shown and "# Net/layers_2/down" in shown and f"{CALLS} → linear.py:" in shown
    narrow = plain_text(programs, 80)
    assert "# Net/layers_0/up" in narrow and f" {CALLS}\n" in narrow
    table = plan(f, *args, saved=1.0)
    assert "Net/layers_0…2" in plain_text(table, 120) and "Net/<wbr>layers_0…2" in table.html()
    places = [place for place in lint(f, *args).places if "linear.py" in str(place)]
    assert all(place.module.startswith("Net/layers_0…2/") and CALLS in str(place) for place in places)
    assert any(moment.module == "Net/layers_1/up" for moment in liveness(f, *args).samples)


def test_scopes_of_the_users_own_are_modules_and_jaxs_are_not():
    def f(w, x):
        with jax.named_scope("attention"):
            y = jax.vmap(lambda x: jnp.einsum("i,ij->j", x, w))(x)
        return jax.checkpoint(jnp.sin)(y).sum()

    equations = both_passes(f, jax.ShapeDtypeStruct((8, 8), jnp.float32), X)
    assert {e.module for e in equations} == {"attention", ""}
    assert all(e.module == "attention" for e in equations if e.primitive == "dot_general")


def test_an_operation_of_a_library_without_scopes_has_the_users_line():
    layer = nnx.eval_shape(lambda: nnx.Linear(8, 4, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(layer)

    def f(state, x):
        return nnx.merge(graph, state)(x).sum()  # here

    (product,) = [e for e in both_passes(f, state, X)[:1] if e.primitive == "dot_general"]
    assert product.source.caller.where == line_of(f, "# here") and product.module == ""


# An earlier JAX also records the line that calls `trace`, which is then the user's line.
starts_in_function = since("0.10", "the call stacks of operations start in the traced function")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Two packages in a folder `site-packages`: a library, and a model of the user's own that calls it."""
    folder = tmp_path / "site-packages"
    for name, text in {
        "a_library": "import jax.numpy as jnp\ndef layer(x):\n    return jnp.sin(x)\n",
        "own_model": "import a_library\ndef loss(x):\n    return a_library.layer(x).sum()\n",
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("own_model")
    for name in ("a_library", "own_model"):
        sys.modules.pop(name)


@starts_in_function
def test_the_users_code_may_be_installed(installed):
    sine = next(e for e in both_passes(installed.loss, X) if e.primitive == "sin")
    assert (sine.source.line, sine.source.function) == (3, "layer")
    assert (sine.source.caller.line, sine.source.caller.function) == (3, "loss")


@starts_in_function
def test_operations_within_one_package_have_no_caller(installed):
    sine = next(e for e in both_passes(sys.modules["a_library"].layer, X) if e.primitive == "sin")
    assert sine.source.caller is None and str(sine.source) == "__init__.py:3 (layer)"


def test_a_call_from_elsewhere_is_the_users(installed):
    def mine(x):
        return installed.loss(x) * 2  # mine

    sine = next(e for e in both_passes(mine, X) if e.primitive == "sin")
    assert sine.source.where == f"{line_of(mine, '# mine')} → __init__.py:3"

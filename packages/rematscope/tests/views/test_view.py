"""The displayed text: exact, within the given width, with totals that add up."""

import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.jupyter
from jax.ad_checkpoint import checkpoint_name
from releases import since
from rich.cells import cell_len
from rich.console import Console

from rematscope import SideBySide, jax_compat, print_fwd_bwd, residual_table, trace
from rematscope.ir.pretty_print import code, lines
from rematscope.render.units import bytes_text, count_text, seconds_text
from rematscope.render.view import plain_text


def layer(W, x):
    return jnp.sin(jnp.dot(W, x))


def net(W1, W2, x):
    return layer(W2, layer(W1, x))


ARGUMENTS = jnp.ones((5, 4)), jnp.ones((6, 5)), jnp.ones(4)
FRUGAL = jax.checkpoint(net, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)


def test_at_80_columns_the_programs_are_stacked():
    text = plain_text(SideBySide(trace(FRUGAL, *ARGUMENTS)), 80)
    line = layer.__code__.co_firstlineno + 1
    where = f"test_view.py:{line} (layer)"
    assert text.splitlines() == [
        "forward",
        "net saves 260 B: computed 44 B + arguments 216 B",
        "",
        "S  W1          f32[5,4]  argument                  80 B →",
        "S  W2          f32[6,5]  argument                 120 B →",
        "S  x           f32[4]    argument                  16 B →",
        f"S  a = W1 @ x  f32[5]    {where}   20 B →",
        f"   b = sin(a)  f32[5]    {where}",
        f"S  c = W2 @ b  f32[6]    {where}   24 B →",
        f"   d = sin(c)  f32[6]    {where}",
        "   return d",
        "─" * 80,
        "backward",
        "recomputes 1 equation (5 transcendentals); defers 2 equations (11",
        "transcendentals)",
        "",
        "   ct                       f32[6]    cotangent",
        "   ── barrier: 6 values ──",
        f"R  b = sin(a)               f32[5]    {where}",
        f"D  e = cos(a)               f32[5]    {where}",
        f"D  f = cos(c)               f32[6]    {where}",
        f"B  g = ct * f               f32[6]    {where}",
        f"B  h = g @ W2               f32[5]    {where}",
        f"B  m = outer(g, b)          f32[6,5]  {where}",
        f"B  n = h * e                f32[5]    {where}",
        f"B  o = n @ W1               f32[4]    {where}",
        f"B  p = outer(n, x)          f32[5,4]  {where}",
        "   return dW1 = p           f32[5,4]",
        "   return dW2 = m           f32[6,5]",
        "   return dx = o            f32[4]",
        "S saved  R recomputed  D deferred  B backward",
    ]


def test_the_programs_are_side_by_side_if_they_fit():
    first, *_, legend = plain_text(SideBySide(trace(net, *ARGUMENTS)), 120).splitlines()
    assert re.fullmatch("forward +│ backward", first)
    assert legend == "S saved  R recomputed  D deferred  B backward"


def test_a_scan_reads_as_a_loop():
    def deep(Ws, x):
        return jax.lax.scan(lambda x, W: (layer(W, x), None), x, Ws)[0]

    passes = trace(deep, jnp.ones((3, 4, 4)), jnp.ones(4))
    assert [line.code for line in lines(passes.forward)] == [
        "a = x",
        "for i in range(3):",
        "  b = Ws[i] @ a",
        "  c = sin(b)",
        "  d = cos(b)",
        "  e[i] = a",
        "  f[i] = d",
        "  a = c",
    ]
    assert [line.code for line in lines(passes.backward)] == [
        "g = ct",
        "for i in reversed(range(3)):",
        "  h = g * f[i]",
        "  m = h @ Ws[i]",
        "  n = outer(h, e[i])",
        "  o[i] = n",
        "  g = m",
    ]


def test_carries_that_trade_places_do_so_at_once():
    def swap(a, b):
        return jax.lax.scan(lambda c, _: ((c[1], jnp.sin(c[0])), None), (a, b), None, length=3)[0]

    (last,) = [line for line in lines(trace(swap, 1.0, 2.0).forward) if line.code.startswith("  c")][-1:]
    assert last.code == "  c, d = d, e"


def test_branches_read_as_a_switch():
    def f(x):
        return jax.lax.cond(x > 0, jnp.sin, jnp.exp, x)

    texts = [line.code for line in lines(trace(f, 1.0).forward)]
    assert any(re.fullmatch(r"\w+(, \w+)* = switch\(\w+\):", text) for text in texts)
    assert "  case 0:" in texts and "  case 1:" in texts


DOTS = [
    (lambda a, b: a @ b, (3,), (3,)),
    (lambda a, b: a @ b, (2, 3), (3,)),
    (lambda a, b: a @ b, (3,), (3, 4)),
    (lambda a, b: a @ b, (2, 3), (3, 4)),
    (lambda a, b: jax.lax.dot_general(a, b, (((0,), (0,)), ((), ()))), (3, 2), (3, 4)),
    (lambda a, b: jax.lax.dot_general(a, b, (((0,), (1,)), ((), ()))), (3, 2), (4, 3)),
    (lambda a, b: jax.lax.dot_general(a, b, (((1,), (1,)), ((), ()))), (2, 3), (4, 3)),
    (lambda a, b: jax.lax.dot_general(a, b, (((), ()), ((), ()))), (3,), (4,)),
    (lambda a, b: jax.lax.dot_general(a, b, (((), ()), ((), ()))), (2, 3), (4,)),
    (lambda a, b: jax.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))), (5, 2, 3), (5, 3, 4)),
    (lambda a, b: jax.lax.dot_general(a, b, (((2,), (2,)), ((1,), (0,)))), (2, 5, 3), (5, 4, 3)),
    (lambda a, b: jax.lax.dot_general(a, b, (((0, 1), (1, 0)), ((), ()))), (2, 3), (3, 2)),
    (lambda a, b: jax.lax.dot_general(a, b, (((2,), (0,)), ((), ()))), (2, 5, 3), (3, 4)),
    (lambda a, b: jax.lax.dot_general(a, b, (((1,), (0,)), ((), ()))), (2, 5, 3), (5, 4)),
    (lambda a, b: jax.lax.dot_general(a, b, (((0,), (0,)), ((), ()))), (3,), (3, 4, 2)),
]


@pytest.mark.parametrize("dot, left, right", DOTS)
def test_the_printed_code_of_a_matmul_computes_the_matmul(dot, left, right):
    a, b = np.random.default_rng(0).normal(size=left), np.random.default_rng(1).normal(size=right)
    passes = trace(dot, a, b)
    (equation,) = [e for e in passes.forward.equations if e.primitive == "dot_general"]
    names = dict(zip([v.name for v in passes.forward.inputs], (a, b), strict=True))
    written = code(equation).partition(" = ")[2]
    value = eval(written, {"outer": np.outer, "einsum": np.einsum}, names)
    np.testing.assert_allclose(value, dot(a, b), rtol=1e-5, atol=1e-5)


def test_comparisons_in_code_are_escaped_in_html_and_not_in_text():
    def f(x):
        return jnp.where(x < 1, jnp.sin(x), x)

    bundle = SideBySide(trace(f, 1.0))._repr_mimebundle_()
    assert "x &lt; 1.0" in bundle["text/html"] and "x < 1.0" in bundle["text/plain"]


def test_identical_layers_share_a_row():
    def deep(W, x):
        for _ in range(6):
            x = layer(W, x)
        return x

    rows = residual_table(deep, jnp.ones((4, 4)), jnp.ones(4)).rows
    (cosines,) = [row for row in rows if row.primitive == "cos"]
    assert len(cosines.values) == 6 and cosines.nbytes == 6 * 16


def test_a_table_of_residuals_names_the_value_its_line_and_its_readers():
    where = f"test_view.py:{layer.__code__.co_firstlineno + 1} (layer)"
    text = plain_text(residual_table(layer, ARGUMENTS[0], ARGUMENTS[2]))
    assert text.splitlines() == [
        "Residual  Type      Bytes          Share  Op        Line                     Used by",
        "────────────────────────────────────────────────────────────────────────────────────────────",
        f"c         f32[5]     20 B  █      17.2 %  cos       {where}  d = ct * c",
        "W         f32[5,4]   80 B  ████▏  69.0 %  argument                           e = d @ W",
        "x         f32[4]     16 B  ▉      13.8 %  argument                           f = outer(d, x)",
        "layer saves 116 B: computed 20 B + arguments 96 B",
    ]


def test_printing_does_not_change_richs_settings(capsys):
    before = dict(vars(rich.jupyter.JupyterRenderable))
    print_fwd_bwd(layer, ARGUMENTS[0], ARGUMENTS[2])
    assert "layer saves 116 B" in capsys.readouterr().out
    assert dict(vars(rich.jupyter.JupyterRenderable)) == before


def test_rich_prints_a_view_with_any_console():
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(SideBySide(trace(layer, ARGUMENTS[0], ARGUMENTS[2])))
    assert "cos" in console.export_text()


@pytest.mark.parametrize(
    "size, text",
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1280, "1.25 KiB"), (2**20, "1 MiB"), (3 * 2**39, "1.5 TiB"),
     (1023 * 1024, "1023 KiB")],
)  # fmt: skip
def test_bytes_are_exact_below_a_kibibyte_and_have_three_digits_above(size, text):
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    "count, text", [(1, "1 FLOP"), (9_999, "9,999 FLOPs"), (10_000, "10 k FLOPs"), (1_234_567, "1.23 M FLOPs")]
)
def test_counts_are_exact_below_ten_thousand_and_have_three_digits_above(count, text):
    assert count_text(count, "FLOPs") == text


def test_seconds_have_the_unit_that_leaves_digits_before_the_point():
    assert [seconds_text(s) for s in (0.0, 4.88e-12, 1.2e-8, 0.0056, 2.5)] == [
        "0 s",
        "4.88 ps",
        "12 ns",
        "5.6 ms",
        "2.5 s",
    ]


def test_a_name_needs_nothing():
    def f(x, w):
        return jnp.tanh(checkpoint_name(x @ w, "h")) @ w

    saved = jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable)
    (product,) = [row for row in residual_table(saved, jnp.ones((2, 3)), jnp.ones((3, 3))).rows if row.primitive]
    assert "tanh" in product.needed_by


def deep_cond(depth):
    if depth == 0:
        return lambda x: jnp.sin(x) * x
    inner = deep_cond(depth - 1)
    return lambda x: jax.lax.cond(x.sum() > depth, inner, jnp.cos, x)


@pytest.mark.parametrize("width", [20, 40, 80, 110, 120])
def test_deep_nesting_fits_a_narrow_column(width):
    view = SideBySide(trace(lambda x: deep_cond(5)(x).sum(), jax.ShapeDtypeStruct((8, 128, 4096), jnp.float32)))
    text = plain_text(view, width).splitlines()
    assert max(map(len, text)) <= width
    assert width < 40 or any("MiB →" in line for line in text), "the bytes at the seam are never cut"


def test_an_argument_may_be_called_like_a_loop_index():
    def f(i):
        return jax.lax.scan(lambda c, x: (c * x, None), 1.0, i)[0]

    codes = [line.code for line in lines(trace(f, jnp.ones(3)).forward)]
    assert "for j in range(3):" in codes and any("i[j]" in code for code in codes)


def test_the_cotangent_of_an_integer_is_nothing():
    text = plain_text(SideBySide(trace(lambda x, n: x * n, 1.0, 2)))
    assert re.search(r"return dn = nothing +float0\[\]", text)


def test_stacks_that_nothing_reads_are_dropped():
    def f(x):
        def body(c, _):
            return jnp.sin(c), jnp.exp(c)

        carry, _ = jax.lax.scan(body, x, None, length=5)
        return carry

    passes = trace(f, 1.0)
    assert passes.forward.count("exp") == 0
    (out, *residuals) = passes.forward(jnp.float32(1.0))
    (gradient,) = passes.backward(*residuals, jnp.float32(1.0))
    assert jnp.allclose(gradient, jax.grad(f)(1.0)) and jnp.allclose(out, f(1.0))


def test_wide_characters_stay_in_their_columns():
    def f(变量, x):
        return jnp.sin(变量) * x

    rows = plain_text(SideBySide(trace(f, 1.0, 2.0)), 80).splitlines()
    starts = {cell_len(row.partition("f32[]")[0]) for row in rows[2:6] if "f32[]" in row}
    assert len(starts) == 1


def test_a_terminal_without_arrows_gets_text(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    print_fwd_bwd(layer, ARGUMENTS[0], ARGUMENTS[2])
    out.flush()
    assert b"layer saves 116 B" in out.buffer.getvalue()


def test_paths_into_dictionaries_cannot_be_confused():
    def f(p):
        return p["a.b"] * p["a"]["b"] * p["plain"]

    names = [v.name for v in trace(f, {"a.b": 1.0, "a": {"b": 2.0}, "plain": 3.0}).forward.inputs]
    assert names == ["p.a.b", "p['a.b']", "p.plain"]


def test_programs_that_are_not_opened_are_named():
    solve = jax.lax.custom_linear_solve

    def f(b):
        return solve(lambda x: 2 * x, b, lambda _, y: y / 2, lambda _, y: y / 2)

    assert "not counted: custom_linear_solve" in plain_text(SideBySide(trace(f, jnp.ones(3))))
    assert trace(lambda x: x.at[0].add(1.0), jnp.ones(3)).opaque_primitives == ()


def test_a_marked_value_is_highlighted_in_text_and_html():
    passes = trace(FRUGAL, *ARGUMENTS)
    product = next(r.value for r in passes.residuals if r.kind == "computed")
    again = next(e.outputs[0] for e in passes.backward.equations if e.role == "R")
    weights = passes.forward.inputs[0]
    view = SideBySide(passes, marked=[product, weights, again])

    text = plain_text(view, 80)
    assert max(map(cell_len, text.splitlines())) <= 80
    marked = [line for line in text.splitlines() if "◀ here" in line]
    assert [line.partition("◀")[0].split() for line in marked] == [
        ["S", "W1"],
        [*"Sa=", "W1", "@", "x"],
        [*"Rb=", "sin(a)"],
    ]
    assert "20 B →" in marked[1], "the bytes stay in their place"

    page = view._repr_mimebundle_()["text/html"]
    assert page.count("◀ here") == 3 and 'class="rs-S rs-marked"' in page and ".rs-marked {" in page
    console = Console(width=120, force_terminal=True, color_system="truecolor", file=io.StringIO())
    console.print(view)
    assert console.file.getvalue().count("\x1b[1;7m") == 2 * 3 + 2  # code and bytes next to the letter: bold, reversed
    assert "◀" not in plain_text(SideBySide(passes))


def test_a_long_program_shows_only_the_lines_around_a_mark():
    def chain(x):
        for _ in range(70):
            x = jnp.sin(x)
        return x

    passes = trace(chain, 1.0)
    marked = [passes.residuals[35].value]
    view, every = (SideBySide(passes, marked, fold=fold) for fold in (True, False))
    text = plain_text(view, 80)
    forward, _, backward = text.partition("backward\n")
    assert len(forward.splitlines()) < 20 and forward.count("◀ here") == 1 and forward.count("more lines") == 2
    assert len(backward.splitlines()) < 80 and backward.count("more lines") == 1 and "fold=False)" in backward
    left_out = sum(int(n.replace(",", "")) for n in re.findall(r"⋮ ([\d,]+) more lines", text))
    assert left_out + text.count("= sin(") + text.count("= cos(") > 140

    whole = plain_text(every, 80)
    assert whole.partition("All ")[2].count("= sin(") == 70 and "fold=False" not in whole
    page = view.html()
    assert page.count("= sin(") == 70 and "more lines" not in page
    few = trace(jnp.sin, 1.0)
    assert "more lines" not in plain_text(SideBySide(few, [few.residuals[0].value]), 80)


def test_a_mark_says_which_of_several_values_it_means():
    def swap(a, b):
        return jax.lax.scan(lambda c, _: ((c[1], jnp.sin(c[0])), None), (a, b), None, length=3)[0]

    passes = trace(swap, 1.0, 2.0)
    (loop,) = [e for e in passes.forward.equations if e.primitive == "scan"]
    assert "c, d = d, e  ◀ d here" in plain_text(SideBySide(passes, [loop.outputs[1]]))


@since("0.10", "jax_remat3 exists")
@pytest.mark.parametrize("remat3", [False, True])
def test_a_view_of_a_checkpoint_names_the_mode(remat3):
    """Also in JAX 0.10, whose derivatives contain no checkpoint under `jax_remat3`."""
    with jax_compat.use_remat3(remat3):
        shown = plain_text(residual_table(jax.checkpoint(layer), jnp.ones((5, 4)), jnp.ones(4)))
        without_checkpoint = plain_text(residual_table(layer, jnp.ones((5, 4)), jnp.ones(4)))
    assert ("under jax_remat3" in shown) == remat3
    assert "jax_remat3" not in without_checkpoint

"""Repeated layers are shown once: a text states the number of repetitions, and a page can unfold them."""

import re
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from rematscope import ResidualTable, SideBySide, residual_table, trace
from rematscope.ir.pretty_print import code
from rematscope.render.view import plain_text
from rematscope.views.program_rows import backward, forward
from rematscope.views.repeats import Forms, repeats

W, X = jax.ShapeDtypeStruct((8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)


def layer(p, x):
    h = checkpoint_name(x @ p["up"], "h")
    y = x + jnp.tanh(h) @ p["down"]
    return (y - y.mean(-1, keepdims=True)) / (1 + jnp.abs(y))


def net(ps, x):
    for p in ps:
        x = layer(p, x)
    return x.sum()


def by_layer(ps, x):
    for p in ps:
        x = jax.checkpoint(lambda p, x: layer(p, x))(p, x)
    return x.sum()


WAYS = {"plain": net, "one checkpoint": jax.checkpoint(net), "a checkpoint a layer": by_layer}


def traced(way, layers):
    return trace(WAYS[way], [{"up": W, "down": W} for _ in range(layers)], X)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_sixty_four_layers_take_few_more_lines_than_four(way):
    lengths = [len(plain_text(SideBySide(traced(way, layers)), 80).splitlines()) for layers in (4, 64)]
    assert lengths[1] <= 200
    assert lengths[1] <= lengths[0] + 2


@pytest.mark.slow
def test_a_tree_of_arrays_takes_one_line_in_any_order_of_its_names():
    """As in Flax, `Dense_10` comes before `Dense_2`, so no block of arguments is repeated."""
    up, down = ({"kernel": jax.ShapeDtypeStruct(shape, jnp.float32)} for shape in ((8, 16), (16, 8)))
    params = {"modules": {f"Dense_{i}": (up, down)[i % 2] for i in range(128)}}

    def named(params, x):
        kernels = [params["modules"][f"Dense_{i}"]["kernel"] for i in range(128)]
        return net([{"up": u, "down": d} for u, d in zip(kernels[::2], kernels[1::2], strict=True)], x)

    text = plain_text(SideBySide(trace(named, params, X)), 80)
    assert len(text.splitlines()) <= 80
    words = re.sub(r"f32\S*|argument|[\d.]+ KiB →", "", text)
    assert "⋮ params: 128 arrays, 128 saved" in " ".join(words.split())
    assert "⋮ return dparams: 128 arrays" in " ".join(words.split())
    assert "a = x @ ….Dense_0.kernel" in " ".join(words.split())


@pytest.mark.parametrize("way", WAYS)
def test_folded_lines_equal_the_shown_lines_up_to_values(way):
    """The lines of each repetition equal those of the first block, with other values."""
    passes = traced(way, 6)
    hidden = 0
    for listing in (forward(passes, (), {}), backward(passes, (), {})):
        for found in repeats(listing.rows):
            hidden += found.end - found.shown
            blocks = [listing.rows[found.start + i * found.period :][: found.period] for i in range(found.times)]
            made = [{v: i for i, row in enumerate(block) for v in row.defines} for block in blocks]
            for block, own, previous in zip(blocks[1:], made[1:], made, strict=False):
                for row, first in zip(block, blocks[0], strict=True):
                    assert (row.gutter, row.type, row.source, row.saved) == (
                        first.gutter, first.type, first.source, first.saved
                    )  # fmt: skip
                for row, before in zip(block, blocks[blocks.index(block) - 1], strict=True):
                    for value, then in zip(row.pieces, before.pieces, strict=True):
                        # Computed in the block, or at the same place in the previous block.
                        assert own.get(value) == previous.get(then) or value is then
    assert hidden > 40


@pytest.mark.slow
def test_bytes_on_the_lines_add_up_to_the_saved_bytes():
    passes = traced("plain", 64)
    text = plain_text(SideBySide(passes), 200)
    units = {"B": 1, "KiB": 1024, "MiB": 1024**2}
    shown = [float(n) * units[unit] for n, unit in re.findall(r"([\d.]+) (B|KiB|MiB) →", text)]
    assert sum(shown) == pytest.approx(passes.saved_bytes(), rel=0.01)


def keys_of_numbers(key, layers):
    return [jax.random.fold_in(key, 1000 * i + 7) for i in range(layers)]


def keys_at_once(key, layers):
    return list(jax.random.split(key, layers))


@pytest.mark.parametrize("keys", [keys_of_numbers, keys_at_once])
@pytest.mark.parametrize("stacked", [False, True])
def test_layers_with_consecutive_keys_and_parameters_are_folded(keys, stacked):
    def lines(layers):
        def dropped(ps, x, key):
            every = [{n: w[i] for n, w in ps.items()} for i in range(layers)] if stacked else ps
            for p, k in zip(every, keys(key, layers), strict=True):
                x = layer(p, jnp.where(jax.random.bernoulli(k, 0.9, x.shape), x, 0))
            return x.sum()

        p = {"up": W, "down": W}
        stack = {n: jax.ShapeDtypeStruct((layers, *w.shape), w.dtype) for n, w in p.items()}
        key = jax.eval_shape(lambda: jax.random.key(0))
        passes = trace(dropped, stack if stacked else [p] * layers, X, key)
        return len(plain_text(SideBySide(passes), 80).splitlines())

    assert lines(16) <= lines(8) + 8


ORDERS = {
    "each the next": (range(12), "⋮ 11 × the 22 lines above, [i + 1]"),
    "each the one before": (range(11, -1, -1), "⋮ 11 × the 22 lines above, [i − 1]"),
    "every other": (range(0, 24, 2), "⋮ 11 × the 22 lines above, [i + 2]"),
    "always the same": ([0] * 12, "⋮ 11 × the 22 lines above "),
    "two by turns": ([0, 1] * 6, "⋮ 5 × the 44 lines above "),
}


@pytest.mark.parametrize("order, expected", ORDERS.values(), ids=ORDERS)
def test_a_fold_states_which_key_each_repetition_reads(order, expected):
    def dropouts(x):
        keys = jax.random.split(jax.random.key(0), 24)
        for i in order:
            x = jnp.where(jax.random.bernoulli(keys[i], 0.5, x.shape), jnp.sin(x), 0.0)
        return x.sum()

    assert expected in plain_text(SideBySide(trace(dropouts, X)), 200)


IN_NO_ORDER = [0, 5, 2, 9, 1, 7, 3, 11, 4, 4, 15, 6, 10, 13, 8, 12]  # no step occurs twice in a row


def by_slices(ys):
    return lambda i: ys[i : i + 1]


def by_split(ys):
    return jnp.split(ys, 16).__getitem__


def from_an_earlier_block(ys):
    return [jnp.sin(y) for y in ys].__getitem__


@pytest.mark.parametrize("take", [by_slices, by_split, from_an_earlier_block])
def test_repetitions_that_read_in_no_order_are_not_folded(take):
    """Repetitions that read places in order are folded. Otherwise, a fold would suggest an order."""
    ys = [jnp.ones(4)] * 16 if take is from_an_earlier_block else jnp.ones((16, 4))

    def longest(order):
        def f(x, ys):
            taken = take(ys)
            for i in order:
                x = jnp.cos(x * taken(i))
            return x.sum()

        rows = forward(trace(f, jnp.ones(4), ys), (), {}).rows
        return max((r.times for r in repeats(rows) if any("*" in row.code for row in rows[r.start : r.end])), default=1)

    assert longest(range(16)) >= 15
    assert longest(IN_NO_ORDER) == 1


@pytest.mark.slow
def test_a_page_contains_every_line_folded_at_first():
    passes = traced("plain", 64)
    page = SideBySide(passes).html()
    assert page.count("<details>") == page.count("<summary>") >= 3 and "<details open" not in page
    assert code(passes.forward.equations[-2]) in page
    whole = SideBySide(passes, fold=False)
    text = plain_text(whole, 200)
    assert "<details>" not in whole.html() and "⋮" not in text
    assert all(code(equation) in text for equation in passes.forward.equations)


@pytest.mark.slow
def test_short_programs_and_programs_with_marks_are_not_folded():
    short, long = traced("plain", 1), traced("plain", 64)
    marked = SideBySide(long, [long.forward.equations[200].outputs[0]])
    assert "⋮" not in plain_text(SideBySide(short), 80)
    gaps = [line for line in plain_text(marked, 80).splitlines() if "⋮" in line]
    assert all("more lines" in line or "fold=False" in line for line in gaps)
    assert "<details>" not in marked.html()


def test_layers_that_differ_are_not_folded():
    """They differ in an operation, a number, or the values that they read."""
    f32 = jax.ShapeDtypeStruct((4,), jnp.float32)

    def numbers(x):
        for i in range(40):
            x = jnp.sin(x) * (i + 0.5)
        return x

    def kinds(x):
        for i in range(40):
            x = jnp.sin(x) if i.bit_count() % 2 else jnp.cos(x)  # a Thue–Morse sequence: no block occurs three times
        return x

    def wires(x):
        seen = [x, x + 1]
        for i in range(60):
            seen.append(seen[-1] * seen[i * i // 3 % len(seen)])
        return seen[-1]

    for f in (numbers, wires, kinds):
        passes = trace(f, f32)
        shown = plain_text(SideBySide(passes), 100)
        assert len(forward(passes, (), {}).rows) > 60 or f is kinds
        assert all(e.outputs[0].name + " =" in shown for e in passes.forward.equations), f.__name__


def test_repeated_blocks_in_loops_and_nested_blocks_are_found():
    def step(x, _):
        for _ in range(30):
            x = jnp.sin(jnp.cos(x))
        return x, None

    text = plain_text(SideBySide(trace(lambda x: jax.lax.scan(step, x, length=3)[0].sum(), X)), 100)
    assert "× the 2 lines above" in text or "× the 4 lines above" in text
    assert len(text.splitlines()) < 60


@pytest.mark.slow
def test_a_transformer_of_64_layers_takes_at_most_two_hundred_lines():
    """64 layers of about 180 equations between an argument and a loss, and their table of residuals."""
    d, heads = 8, 2
    shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "out": (d, d), "up": (d, 2 * d), "down": (2 * d, d), "scale": (d,)}

    def block(p, x):
        y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["scale"]
        q, k, v = ((y @ p[name]).reshape(*x.shape[:2], heads, -1) for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * d**-0.5)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["out"]
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

    def loss(ps, x):
        for p in ps:
            x = block(p, x)
        return jnp.mean(x * x)

    layers = [{name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}] * 64
    passes = trace(loss, layers, jax.ShapeDtypeStruct((2, 4, d), jnp.float32))
    view = SideBySide(passes)
    for width in (80, 100, 120):
        text = plain_text(view, width)
        assert len(text.splitlines()) <= 200 and "fold=False" in text
    kept = [r for r in passes.residuals if r.kind == "computed"]
    assert "63 × the" in text and "fold=False" not in plain_text(SideBySide(passes, fold=False), 120)
    table = ResidualTable(passes)
    assert len(plain_text(table, 80).splitlines()) <= 200 and "ps.0…63.up" in plain_text(table, 120)
    assert sum(row.nbytes for row in table.rows) == passes.saved_bytes() and len(kept) >= 64


def with_other_numbers(ps, x):
    for i, p in enumerate(ps):
        x = (1 - 0.1 / (i + 2)) * layer(p, x)
    return x.sum()


def growing(layers, by=1):
    widths = [8 + by * i for i in range(layers)]
    shapes = ((("up", (8, width)), ("down", (width, 8))) for width in widths)
    return [{name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in each} for each in shapes]


@pytest.mark.slow
@pytest.mark.parametrize("f", [net, with_other_numbers, jax.checkpoint(net)])
def test_in_a_long_text_layers_that_differ_in_constants_or_shapes_are_folded(f):

    def text(layers):
        return plain_text(SideBySide(trace(f, growing(layers, by=f is not with_other_numbers), X)), 80)

    long = text(64)
    assert len(long.splitlines()) <= 100 and "with other constants or shapes" in " ".join(long.split())
    assert "with other" not in text(5)  # which is not folded


def test_a_long_text_of_different_layers_omits_its_middle():
    def f(x):
        for i in range(400):
            x = (jnp.sin, jnp.cos, jnp.tanh)[i * i // 7 % 3](x.reshape(x.shape[::-1]) if i * i % 11 < 5 else x)
        return x.sum()

    lines = plain_text(SideBySide(trace(f, X)), 80).splitlines()
    assert len(lines) <= 200


def test_a_page_names_the_modules_of_folded_layers_with_long_names():
    """The summary of these layers takes two lines."""

    def f(ps, x):
        for i, p in enumerate(ps):
            with jax.named_scope(f"transformer_of_many_like_layers/checkpointed_block_with_a_long_name_{i}"):
                x = layer(p, x)
        return x.sum()

    page = SideBySide(trace(f, [{"up": W, "down": W}] * 12, X)).html()
    assert "with_a_long_name_1…11" in re.sub(r"\s+|<[^>]*>", "", page)


@pytest.mark.slow
def test_a_table_of_different_layers_has_at_most_two_hundred_lines():
    """Layers of different widths share rows. Of layers with different operations, the smallest are only counted."""

    def f(x):
        for i in range(150):
            with jax.named_scope(f"{'abcdefghij'[i % 10]}{'klmnopqrstuvwxyz'[i // 10]}/a_module_of_its_own"):
                x = jnp.sin(x).T
        return x.sum()

    for table in (residual_table(f, X), residual_table(net, growing(64), X)):
        text = plain_text(table, 80)
        assert len(text.splitlines()) <= 200 and max(map(len, text.splitlines())) <= 80
        assert sum(row.nbytes for row in table.rows) == table.nbytes
    assert "64 × f32[4,8…71]" in plain_text(table, 160) and "smaller row" not in text
    assert re.search(r"⋮ \d+\s+smaller", plain_text(residual_table(f, X), 80))


def test_each_line_is_compared_at_most_twice_and_its_form_is_computed_once():
    """Pairs of layers are repeated too, and so are the lines before the first repetition."""

    def f(x, ws):
        for w, key in zip(ws, jax.random.split(jax.random.key(0), len(ws)), strict=True):
            for k in jax.random.split(key):
                x = jnp.where(jax.random.bernoulli(k, 0.9, x.shape), jnp.tanh(x) @ w, 0.0)
        return x.sum()

    rows, forms = forward(trace(f, X, [W] * 32), (), {}).rows, Forms()
    calls = []

    def profile(frame, event, _):
        calls.append(frame.f_code.co_name if event == "call" else "")

    for again in (False, True):
        calls.clear()
        sys.setprofile(profile)
        try:
            found = repeats(rows, forms=forms)
        finally:
            sys.setprofile(None)
        assert [repeat.times for repeat in found] == [32, 32] and again == ("_form_of" not in calls)
        assert calls.count("repeats_at") <= 2 * len(rows)


def test_an_empty_residual_has_no_row():
    empty = jax.custom_vjp(lambda x: jnp.sin(x))
    empty.defvjp(lambda x: (jnp.sin(x), (x, jnp.zeros(0) * x[0, 0])), lambda saved, ct: (ct * jnp.cos(saved[0]),))
    assert any(residual.nbytes == 0 for residual in trace(empty, X).residuals)
    assert [row.type for row in residual_table(empty, X).rows] == ["f32[4,8]"]

"""Bytes live step by step: chains counted by hand, and what must hold for every function."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from matplotlib.figure import Figure

from rematscope import liveness, trace

VECTOR = jax.ShapeDtypeStruct((256,), np.float32)  # 1 KiB, the unit of what follows


def sines(n):
    def f(x):
        for _ in range(n):
            x = jnp.sin(x)
        return x

    return f


def vectors(timeline, band="nbytes"):
    """Each moment's bytes, in vectors."""
    return [getattr(moment, band) / 1024 for moment in timeline.samples]


def split(timeline):
    """(forward, backward) without the three moments between."""
    counts = vectors(timeline)
    return counts[1 : timeline.boundary], counts[timeline.boundary + 1 : -1]


def test_sines_without_checkpoint():
    """Forward makes sin, then cos, of each value; backward multiplies with one cosine after the other."""
    found = liveness(sines(3), VECTOR)
    forward, backward = split(found)
    # x and one sine; and its cosine. After the second cosine the first sine is read no more.
    assert forward == [2, 3, 4, 4, 5, 5]
    # x, three cosines and the result. The cotangent replaces the result, and each multiplication frees a cosine.
    assert backward == [1 + 2 + 1, 1 + 1 + 1, 1 + 0 + 1]
    assert vectors(found)[0] == 1 and vectors(found)[found.boundary] == 1 + 3 + 1 and vectors(found)[-1] == 2
    assert vectors(found, "residuals")[found.boundary] == 3
    assert not any(vectors(found, "recomputed"))
    assert found.peak_bytes == 5 * 1024 and found.peak is found.samples[5], "the third sine"


def test_sines_with_checkpoint():
    found = liveness(jax.checkpoint(sines(3)), VECTOR)
    forward, backward = split(found)
    assert forward == [2, 2, 2]  # x and the value of the moment
    # x and the cotangent. Added: sin; cos of x; sin; the first sine's cosine for it; and the second's for that.
    assert [m.operation.split(" = ")[1][:3] for m in found.samples[found.boundary + 1 : -1]][:5] == [
        "sin", "cos", "sin", "cos", "cos",
    ]  # fmt: skip
    assert backward[:5] == [3, 4, 5, 5, 5]
    assert backward[5:] == [4, 3, 2]
    assert vectors(found, "recomputed")[found.boundary + 1 : -1] == [1, 2, 3, 3, 3, 2, 1, 0]
    assert not any(vectors(found, "residuals")), "what is saved is the argument"


@pytest.mark.parametrize(("n", "k"), [(8, 2), (16, 4), (12, 3)])
def test_segments_save_their_inputs_and_are_recomputed_one_at_a_time(n, k):
    found = liveness(zoo.segments(n, k), VECTOR)
    # Each segment saves its input; the first one's is the argument.
    assert vectors(found, "residuals")[found.boundary] == k - 1
    assert max(split(found)[0]) == 1 + (k - 1) + 1
    # The last segment is recomputed: all its cosines, in addition to x, the other segments' inputs and the cotangent.
    assert found.peak_bytes == 1024 * (1 + (k - 2) + n // k + 1)
    assert max(vectors(found, "recomputed")) == n // k


def test_a_recursive_checkpoint_has_a_peak_of_less_than_half():
    """The recursive example saves log2 n values in addition to x. Without checkpoints, n sines save n values."""
    for n in (4, 8, 16):
        found = liveness(zoo.recursive_checkpoint([jnp.sin] * n), VECTOR)
        assert (
            vectors(found)[found.boundary] == len(trace(zoo.recursive_checkpoint([jnp.sin] * n), VECTOR).residuals) + 1
        )
        plain = liveness(sines(n), VECTOR)
        assert found.peak_bytes <= plain.peak_bytes
    assert found.peak_bytes < plain.peak_bytes / 2


def test_a_loop_counts_its_body_once_and_its_entire_stacks():
    def f(x):
        return lax.scan(lambda x, _: (jnp.sin(x), None), x, None, length=10)[0]

    found = liveness(f, VECTOR)
    # x, the stack of cosines, and the carry. In the body, the carry and its sine are live for the cosine.
    assert split(found)[0] == [1 + 10 + 1, 1 + 10 + 2, 1 + 10 + 1]
    assert vectors(found, "residuals")[1 : found.boundary + 1] == [10, 10, 10, 10]
    # Backward: x, the stack, the cotangent as carry and one cosine; then the gradient, which they are multiplied to.
    assert split(found)[1] == [1 + 10 + 2, 2]
    assert found.samples[1].operation == "for i in range(10)"


def test_a_loop_s_recomputed_stack():
    def f(x):
        return lax.scan(lambda x, _: (jnp.sin(x), None), x, None, length=10)[0]

    found = liveness(jax.checkpoint(f), VECTOR)
    assert max(vectors(found, "recomputed")) >= 10 and not any(vectors(found, "residuals"))


def test_offloaded_values_take_no_device_bytes_and_have_their_own_row():
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    matrix = jax.ShapeDtypeStruct((16, 16), np.float32)
    found = liveness(jax.checkpoint(lambda w, x: jnp.sin(jnp.sin(x @ w) @ w), policy=policy), matrix, matrix)
    assert vectors(found)[found.boundary] == 2 + 1, "the arguments and the result"
    assert vectors(found, "host")[found.boundary] == 2 and not any(vectors(found, "host")[i] for i in (0, -1))
    assert ["host", "memory", "0", "B", "2", "KiB"] in [line.split()[:6] for line in str(found).splitlines()]
    assert "host memory" not in str(liveness(jnp.sin, VECTOR))


def test_branches_leave_no_live_values():
    @jax.checkpoint
    def f(p, x):
        return lax.cond(p, sines(3), lambda x: x * 2, x)

    found = liveness(f, np.array(True), VECTOR)
    assert max(split(found)[0]) == pytest.approx(2, abs=0.01) and vectors(found)[found.boundary] == pytest.approx(
        2, abs=0.01
    )


def test_the_text_and_the_plot_show_the_same_timeline():
    assert (
        str(liveness(jax.checkpoint(sines(2)), VECTOR))
        == """\
f: bytes live after each equation
forward ▂▄▄▄│▆██▆▄▄ backward
peak 4 KiB, backward, step 5 of 9: c = cos(x), test_liveness.py:24 (f)

              start   boundary    peak     end
arguments     1 KiB      1 KiB   1 KiB   1 KiB
recomputed      0 B        0 B   2 KiB     0 B
temporaries     0 B      1 KiB   1 KiB   1 KiB
total         1 KiB      2 KiB   4 KiB   2 KiB"""
    )


def test_in_a_notebook_a_picture_and_its_numbers():
    found = liveness(sines(100), VECTOR)
    shown = found._repr_mimebundle_()
    assert re.search(r'<img [^>]*src="data:image/png;base64,iVBOR[^"]+"[^>]* alt="f: bytes live', shown["text/html"])
    assert found.html() == shown["text/html"] and shown["text/plain"] == str(found)
    # 200 steps forward and 100 backward, in bars that stand for five each.
    assert len(str(found).splitlines()[1]) <= 80


@pytest.mark.parametrize("size", [(7, 3.4), (4.8, 2.8)])
@pytest.mark.parametrize("layers", [1, 2, 3, 30])
def test_no_two_labels_of_a_picture_overlap(size, layers):
    """The dashed line may cross the label of the peak, which has a background."""
    for f in (sines(layers), jax.checkpoint(sines(layers))):
        drawn = Figure(figsize=size, layout="constrained")
        ax = drawn.subplots()
        liveness(f, VECTOR).plot(ax)
        drawn.canvas.draw()
        ax.set(title="another title")
        drawn.canvas.draw()
        (above,) = ax.child_axes
        texts = [*ax.texts, ax.title, *above.get_xticklabels()]
        boxes = [text.get_window_extent() for text in texts]
        pairs = itertools.combinations(range(len(boxes)), 2)
        assert not [(texts[a].get_text(), texts[b].get_text()) for a, b in pairs if boxes[a].overlaps(boxes[b])]
        (label,) = (text for text in ax.texts if text.get_text().startswith("peak"))
        assert label.get_bbox_patch() is not None


def test_plots_that_share_an_axis_share_its_unit_and_range():
    small, large = (liveness(sines(4), np.ones(size, np.float32)) for size in (2**6, 2**18))
    for timelines in ([small, large], [large, small]):
        axes = Figure().subplots(1, 2, sharey=True)
        for timeline, ax in zip(timelines, axes, strict=True):
            timeline.plot(ax)
        (unit,) = {ax.get_ylabel() for ax in axes}
        top = axes[0].get_ylim()[1] * {"KiB": 2**10, "MiB": 2**20}[unit]
        assert top == pytest.approx(1.2 * large.peak_bytes) and (unit == "MiB") == (timelines[0] is large)


def test_the_plot_marks_the_boundary_and_the_peak():
    found = liveness(sines(3), VECTOR)
    ax = Figure().subplots()
    found.plot(ax)
    turn, peak = ax.get_lines()
    assert set(turn.get_xdata()) == {found.boundary} == {7}
    assert (list(peak.get_xdata()), list(peak.get_ydata())) == ([5], [5])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["arguments", "residuals", "temporaries"]
    assert ax.get_ylabel() == "KiB"


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**4 - 1))
def test_segments_of_any_length(lengths, wrapped):
    """Never negative, ends with the gradient, and the last segment's bytes are there when the backward pass begins."""

    def f(x):
        for i, length in enumerate(lengths):
            x = (jax.checkpoint(sines(length)) if wrapped >> i & 1 else sines(length))(x)
        return x

    found = liveness(f, VECTOR)
    plain = [length for i, length in enumerate(lengths) if not wrapped >> i & 1]
    inputs = sum(wrapped >> i & 1 for i in range(1, len(lengths)))
    assert vectors(found)[found.boundary] == 1 + sum(plain) + inputs + 1
    assert vectors(found)[-1] == 2
    assert min(vectors(found)) == 1
    assert found.peak_bytes >= 1024 * (1 + sum(plain) + inputs + 1)

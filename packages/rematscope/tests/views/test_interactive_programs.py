"""The interactive view: every value of both programs and of the table is marked up, and there is a note about each."""

import functools
import re
import subprocess
import sys

import jax
import jax.numpy as jnp

from rematscope import interactive_programs, residual_table, trace
from rematscope.render.view import plain_text
from rematscope.views.interactive_programs import InteractivePrograms


def layer(W, x):
    return jnp.sin(jnp.dot(W, x))


def net(W1, W2, x):
    return layer(W2, layer(W1, x))


ARGUMENTS = jnp.ones((5, 4)), jnp.ones((6, 5)), jnp.ones(4)
FRUGAL = jax.checkpoint(net, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)


def lit(state: dict, name: str) -> list[str]:
    """Return what is highlighted with the value `name`: values in the programs, and `table` for a row of the table."""
    (number,) = [i for i, note in enumerate(state["notes"]) if note.split("  ·  ")[0] == name]
    found = re.findall(r'<(span class="rs-value"|tr) data-value="([\d ]+)">([^<]*)', state["html"])
    return [text if tag != "tr" else "table" for tag, numbers, text in found if str(number) in numbers.split()]


def note(state: dict, name: str) -> str:
    (found,) = [note for note in state["notes"] if note.split("  ·  ")[0] == name]
    return found.removeprefix(f"{name}  ·  ")


def test_a_value_is_highlighted_wherever_it_appears():
    state = InteractivePrograms(trace(FRUGAL, *ARGUMENTS)).pane()
    # a = W1 @ x is saved, read by b = sin(a) of either pass, and by e = cos(a).
    assert lit(state, "a") == ["table", *"aaaa"]
    assert lit(state, "b") == [*"bbbb"], "made in both passes, read by a product and by an outer one"
    assert lit(state, "x") == ["table", "x", "x", "x"]


def test_the_note_about_a_value():
    state = InteractivePrograms(trace(FRUGAL, *ARGUMENTS)).pane()
    where = f"test_interactive_programs.py:{layer.__code__.co_firstlineno + 1} (layer)"
    assert note(state, "x") == "f32[4]  ·  saved, 16 B  ·  argument"
    assert note(state, "a") == f"f32[5]  ·  saved, 20 B  ·  {where}"
    assert note(state, "b") == f"f32[5]  ·  not saved  ·  {where}  ·  recomputed in the backward pass"
    assert note(state, "e") == f"f32[5]  ·  deferred: computed once, in the backward pass  ·  {where}"
    assert note(state, "g") == f"f32[6]  ·  computed by the backward pass  ·  {where}"
    assert note(state, "ct") == "f32[6]  ·  cotangent"


def test_a_slice_lights_with_its_array():
    def deep(Ws, x):
        return jax.lax.scan(lambda x, W: (jax.checkpoint(layer)(W, x), None), x, Ws)[0]

    state = InteractivePrograms(trace(deep, jnp.ones((3, 4, 4)), jnp.ones(4))).pane()
    assert lit(state, "Ws") == ["table", "Ws", *["Ws[i]"] * 3]
    assert lit(state, "d") == ["table", "d", "d[i]", "d[i]"], "what the loop stacks, and the slices that are read"
    assert lit(state, "a") == [*"aaaaa"], "a carry is one variable"


def test_names_are_found_as_values_not_as_text():
    """Arguments called like operations and attributes light alone."""

    def f(sin, T):
        return jnp.sin(sin @ T.T)

    state = InteractivePrograms(trace(f, jnp.ones((2, 3)), jnp.ones((4, 3)))).pane()
    assert "sin(<span" in state["html"]
    # Read by the transposition or the matmul, and by the matmuls of the backward pass.
    assert all(text in ("table", "sin") for text in lit(state, "sin"))
    assert all(text in ("table", "T") for text in lit(state, "T"))


def test_a_row_of_similar_values_is_highlighted_with_each():
    def deep(W, x):
        return functools.reduce(lambda x, _: layer(W, x), range(6), x)

    passes = trace(deep, jnp.ones((4, 4)), jnp.ones(4))
    state = InteractivePrograms(passes).pane()
    (cosines,) = [row for row in residual_table(deep, jnp.ones((4, 4)), jnp.ones(4)).rows if row.primitive == "cos"]
    assert len(cosines.values) == 6
    assert all("table" in lit(state, name) for name in cosines.values)


def test_the_view_is_static_in_a_terminal(capsys):
    interactive_programs(layer, ARGUMENTS[0], ARGUMENTS[2])
    printed = capsys.readouterr().out
    assert "layer saves 116 B" in printed and "return dW" in printed


def test_twin_is_deterministic_and_complete():
    first, second = (InteractivePrograms(trace(FRUGAL, *ARGUMENTS)) for _ in range(2))
    bundle = first._repr_mimebundle_()
    assert bundle == second._repr_mimebundle_() and set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == f"{plain_text(first.table)}\n\n{plain_text(first.programs)}"


def test_no_public_name_imports_widgets_plots_or_a_solver():
    code = (
        "import sys, rematscope; [getattr(rematscope, name) for name in rematscope.__all__]; "
        "print([m for m in ('anywidget', 'ipywidgets', 'IPython', 'matplotlib', 'scipy.optimize') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_showing_something_imports_no_jax():
    code = "import sys, rematscope, rematscope.render.parts; print('jax' in sys.modules, 'numpy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False False\n"


def test_with_a_device_each_residual_has_its_time(capsys):
    interactive_programs(layer, ARGUMENTS[0], ARGUMENTS[2], device="tpu v5e")
    printed = capsys.readouterr().out
    assert "Time" in printed and "Estimated by a roofline of tpu v5e" in printed

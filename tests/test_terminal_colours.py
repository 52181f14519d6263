"""Every text color has enough contrast on every common terminal background."""

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

import rematscope
from grader.learner import assistance, board
from grader.learner.progress import Progress
from grader.learner.prose import Prose
from grader.verdicts.verdict import Effect, Finding, FindingKind, Outcome, Verdict
from grader.verdicts.views import VerdictView

# Common terminal backgrounds: black, white, the lightest background that is called dark and the darkest that is called
# light.
GROUNDS = ["#000000", "#1e1e1e", "#eeeeee", "#ffffff"]
NAME = "checkpoint_dot_policy"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.2, from 1 to 21."""
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def layer(w, x):
    return jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.tanh(y @ w)) ** 2)(x))


def verdict(outcome):
    effects = (Effect("your answer", 12, 34), Effect("the worked answer", 1, 2))
    finding = Finding(FindingKind.EXTRA_RESIDUAL, "Not saved.", expected="a", got="b", next="Why?")
    return VerdictView(Verdict(NAME, outcome, (finding,), effects=effects))


def views():
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    passes = rematscope.trace(layer, x, x)
    yield rematscope.SideBySide(passes, marked=[passes.residuals[0].array])
    yield rematscope.residual_table(layer, x, x)
    yield rematscope.compare({"one": layer, "two": layer}, x, x)
    yield rematscope.liveness(layer, x, x)
    yield from map(verdict, Outcome)
    yield board.board()
    yield assistance.solution(NAME, Progress(), anyway=True)
    yield Prose(
        "Write `f(x)`:\n\n| argument | shape |\n|---|---|\n| `x` | `(n,)` |\n\n* **one**\n\n```python\nx = 'y'\n```"
    )


@pytest.mark.parametrize("width", [80, 160])
def test_colored_text_has_its_own_background_and_pictures_are_visible_on_any_background(width):
    console = Console(width=width, force_terminal=True, color_system="truecolor", record=False)
    seen = set()
    for view in views():
        for segment in console.render(view):
            style = segment.style
            if segment.control or not style or not segment.text.strip() or not (style.color or style.dim):
                continue
            picture = not set(segment.text) - set(" █▉▊▋▌▍▎▏─│━╸╺•")
            assert not style.dim or picture, f"dim: {segment.text!r}"
            if style.color is None or style.color.is_default:
                continue
            colour = style.color.get_truecolor().hex
            if picture and not style.bgcolor:
                assert style.color.triplet, f"a colour of the terminal's own: {segment.text!r}"
                assert min(contrast(colour, ground) for ground in GROUNDS) >= 3, (segment.text, style)
                continue
            assert style.bgcolor and not style.bgcolor.is_default, f"{style} on any ground: {segment.text!r}"
            assert style.color.triplet and style.bgcolor.triplet, f"a colour of the terminal's own: {segment.text!r}"
            assert contrast(colour, style.bgcolor.get_truecolor().hex) >= 4.5, (segment.text, style)
            seen.add(segment.text.strip())
    assert {"S", "R", "D", "Passed", "Not passed yet"} <= seen

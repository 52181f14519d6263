"""Every view has three forms with the same words, and escapes names in HTML."""

import html
import re

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import rematscope
from rematscope.render.parts import Lines, Paragraph, Stack, TextTable
from rematscope.render.view import View, plain_text
from rematscope.views.interactive_programs import InteractivePrograms


def hostile(p):
    h = checkpoint_name(p["<x-key a='1'>"] @ p["&amp;"], "<x-name>")
    return jnp.sin(h)


def in_modules(p):
    with jax.named_scope("<x-module>"):
        return jnp.sin(hostile(p))


in_modules.__name__ = hostile.__name__ = "<x-function>"
ARGUMENTS = ({"<x-key a='1'>": jnp.ones((2, 3)), "&amp;": jnp.ones((3, 4))},)

VIEWS = {
    "SideBySide": lambda: rematscope.SideBySide(rematscope.trace(hostile, *ARGUMENTS)),
    "ResidualTable": lambda: rematscope.residual_table(hostile, *ARGUMENTS),
    "InteractivePrograms": lambda: InteractivePrograms(rematscope.trace(hostile, *ARGUMENTS)),
    "Timeline": lambda: rematscope.liveness(hostile, *ARGUMENTS),
    "Measurement": lambda: rematscope.measure(hostile, *ARGUMENTS),
    "Lint": lambda: rematscope.lint(lambda p: hostile(p) + checkpoint_name(p["&amp;"], "<x-name>").sum(), *ARGUMENTS),
    "Plan": lambda: rematscope.plan(hostile, *ARGUMENTS, saved=1.0),
    "Frontier": lambda: rematscope.frontier(hostile, *ARGUMENTS),
    "SavedNamesMatrix": lambda: rematscope.frontier(hostile, *ARGUMENTS).matrix,
    "Fit": lambda: rematscope.fit(hostile, *ARGUMENTS, peak="1 MiB"),
    "Auto": lambda: rematscope.auto(in_modules, saved=0).plan(*ARGUMENTS),
    "Comparison": lambda: rematscope.compare({"<x-label>": hostile}, *ARGUMENTS, device="h100"),
    "Lines": lambda: Lines(["<x-line>", "a & b"]),
    "Paragraph": lambda: Paragraph("<x-paragraph> a & b"),
    "TextTable": lambda: TextTable([["<x-title>"], ["a & b"]], "<x-footer>"),
    "Stack": lambda: Stack(Lines(["<x-line>"]), Paragraph("a & b")),
}


@pytest.fixture(scope="module", params=VIEWS)
def view(request) -> View:
    return VIEWS[request.param]()


@pytest.mark.slow
def test_names_are_escaped_in_html(view):
    pages = [view.html(), view.pane()["html"]]
    assert not any("<x-" in page for page in pages)
    assert "<x-" in repr(view) and all("&lt;x-" in page for page in pages), "they are shown as they are"


def test_the_page_has_every_word_of_the_text(view):
    page = html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", view.html().replace("<wbr>", ""), flags=re.DOTALL))
    text = repr(view).replace("Not shown at this width", "")  # a page shows all columns
    words = [word.rstrip("…") for word in re.findall(r"[^\s─│█-▏]+", text)]
    missing = [word for word in words if word not in page.replace("\n", " ")]
    assert missing == []


def test_a_notebook_gets_the_text_and_the_page(view):
    assert view._repr_mimebundle_() == {"text/plain": plain_text(view), "text/html": view.html()}


def test_a_view_without_parts_raises_an_error():
    with pytest.raises(NotImplementedError, match="Empty defines neither parts nor __rich_console__"):
        repr(type("Empty", (View,), {})())

"""A page shows names unchanged: no name becomes HTML, and none is lost."""

import functools
import html.parser

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from rematscope import fit, frontier, lint, plan

NAMES = ["<b>bold</b>", "a & b", 'a "quoted" name', "&lt;", "<!-- none -->"]
X = jax.ShapeDtypeStruct((8, 8), np.float32)


def net(x):
    for name in NAMES:
        x = checkpoint_name(jnp.sin(x) @ x, name)
    return x


nameless = lambda x: jnp.tanh(net(x))  # noqa: E731 (the page must say what a lambda is called)


@jax.checkpoint
def layers(x):
    for _ in range(4):
        x = net(x)
    return x


@functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("<i>"))
def misplaced(x):
    for name in NAMES:
        checkpoint_name(x, name)
    return jnp.sin(x)


class Page(html.parser.HTMLParser):
    """The elements of a page and its visible text."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)

    def handle_data(self, data):
        self.text += data


PAGES = {
    "plan": (lambda: plan(nameless, X, saved=0.5), ["<lambda>: save", *NAMES]),
    "plan with a finding": (lambda: plan(layers, X, saved=0.5), ["layers: save", "(net)", *NAMES]),
    "fit": (lambda: fit(jax.checkpoint(nameless), X, peak="1 GB"), ["<lambda>, compiled", *NAMES]),
    "frontier": (lambda: frontier(nameless, X), ["<lambda>: ", *NAMES]),
    "matrix": (lambda: frontier(nameless, X).matrix, NAMES),
    "lint": (lambda: lint(misplaced, X), ["misplaced: ", "'<i>'", *map(repr, NAMES[:4])]),
    "lint of a lambda": (lambda: lint(lambda x: x @ x, X), ["<lambda>: no findings"]),
}


@pytest.mark.parametrize("which", PAGES)
def test_names_are_on_the_page_as_they_are(which):
    view, texts = PAGES[which]
    page = Page(view().html())
    assert page.elements <= {
        "br",
        "wbr",
        "div",
        "img",
        "p",
        "pre",
        "style",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
    }
    for text in texts:
        assert text in page.text

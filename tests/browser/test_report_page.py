"""The saved page of a report, in narrow windows and printed."""

import jax
import jax.numpy as jnp
import pytest

import rematscope

# The source lines in the last columns, and on how many lines of the window each is shown.
WORDS = """() => [...document.querySelectorAll('td:last-child code')].flatMap(code => {
    const range = document.createRange(), text = code.firstChild;
    return [...text.data.matchAll(/\\S+:\\d+/g)].map(word => {
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        return [word[0], range.getClientRects().length];
    });
})"""


def train_step(weights, x):
    def loss(weights):
        y = x
        for i, weight in enumerate(weights):
            with jax.named_scope(f"ResidualTransformerBlock_{i}/MultiHeadDotProductAttention_0"):
                y = y + jnp.tanh(jax.nn.softmax(y @ weight))
        return jnp.mean(y**2)

    return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights))


@pytest.fixture(scope="module")
def report():
    weights, x = [jax.ShapeDtypeStruct((64, 64), jnp.float32)] * 3, jax.ShapeDtypeStruct((512, 64), jnp.float32)
    return rematscope.report(train_step, weights, x, memory="700 KiB")


@pytest.fixture(scope="module")
def page(browser, report, tmp_path_factory):
    """Open the page of a report in a window that is 900 px wide."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    report.save(file)
    with browser.new_context(viewport={"width": 900, "height": 900}) as window:
        page = window.new_page()
        page.goto(file.as_uri())
        yield page


@pytest.mark.slow
@pytest.mark.parametrize("media, width", [("screen", 900), ("print", 700)])
def test_no_source_line_is_broken_and_nothing_scrolls_sideways(page, media, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(media=media)
    words = page.evaluate(WORDS)
    assert words and all(lines == 1 for _, lines in words), words
    scrolled = "all => Math.max(...all.map(each => each.scrollWidth - each.clientWidth))"
    assert page.locator("html, .scroll").evaluate_all(scrolled) == 0


@pytest.mark.slow
def test_text_in_pictures_is_readable_in_a_window_as_narrow_as_a_phone(page):
    page.set_viewport_size({"width": 420, "height": 900})
    page.emulate_media(media="screen")
    size = "all => Math.min(...all.map(e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a))"
    assert page.locator("svg text").evaluate_all(size) >= 11
    assert page.evaluate("document.scrollingElement.scrollWidth") == 420


# The font sizes of texts in px, and by how many px texts are wider than their rectangles or the picture.
SIZES = "all => all.map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"
TOO_WIDE = """all => all.map(text => text.getBoundingClientRect().right -
    (text.previousElementSibling ?? text.closest('svg')).getBoundingClientRect().right)"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [490, 1100])
def test_text_in_a_notebooks_pictures_is_readable_and_inside_its_rectangle(browser, report, width):
    with browser.new_context(viewport={"width": width, "height": 900}) as window:
        page = window.new_page()
        page.set_content(f'<body style="margin: 0">{report.html()}</body>')
        texts = page.locator(".rs-report svg text")
        assert texts.count() > 5 and min(texts.evaluate_all(SIZES)) > 9
        assert max(page.locator(".rs-report .node text").evaluate_all(TOO_WIDE)) < 1

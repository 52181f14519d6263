"""The search in a saved page, with the keyboard: both themes, three widths, and a name that tries to inject markup."""

import json

import jax
import jax.numpy as jnp
import pytest
from lab import tab_to

from rematscope import ResidualTable, SideBySide, trace
from rematscope.render.parts import Stack

HOSTILE = "<img src=x onerror='document.title=1'>"


def layer(w, x):
    return jnp.tanh(x @ w) + x


def net(p, x):
    for w in p["layers"]:
        x = jax.checkpoint(layer)(w, x)
    return jnp.sin(x * p[HOSTILE]).sum()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "net.html"
    weights = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    passes = trace(net, {"layers": [weights] * 30, HOSTILE: x}, x)
    Stack(SideBySide(passes), ResidualTable(passes)).save(path)
    return path


@pytest.fixture(params=[("light", 1440), pytest.param(("dark", 900), marks=pytest.mark.slow), ("light", 420)], ids=str)
def page(browser, saved, request):
    scheme, width = request.param
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 700})
    errors: list = []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(saved.as_uri())
    yield page
    assert errors == [] and page.title() == "rematscope" and page.locator("img").count() == 0
    page.close()


def said(page) -> str:
    return page.get_by_role("search").get_by_role("status").inner_text()


def current(page) -> str:
    (row,) = page.locator(".rs-current").all()
    assert row.is_visible()
    return " ".join(row.inner_text().split())


def pressed(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    return said(page)


def test_a_page_is_searched_filtered_and_walked_by_keyboard(page):
    pressed(page, "/")
    page.keyboard.type("tanh")
    assert said(page) == "60 lines", "thirty layers, in both passes"
    assert pressed(page, "Enter") == "1 of 60 lines" and "= tanh(" in current(page)
    assert pressed(page, "Shift+Enter") == "60 of 60 lines" and current(page).startswith("R ")
    assert page.locator("details[open]").count() >= 1, "what is hidden opens where something is found in it"
    pressed(page, "Escape")
    assert page.get_by_label("Find in the programs").input_value() == "" and said(page) == ""

    late = page.get_by_role("button", name="D deferred")
    tab_to(page, late)
    page.keyboard.press("Space")
    assert late.get_attribute("aria-pressed") == "true"
    shown = page.locator("span.rs-row:visible")
    assert {row.get_attribute("data-role") for row in shown.all()} == {"D"} and said(page) == f"{shown.count()} lines"
    page.keyboard.press("Space")
    assert page.locator("span.rs-row[hidden]").count() == 0


def test_links_lead_from_a_residual_to_its_definition_and_readers_and_back(page):
    row = page.locator("tr.rs-row").first
    row.click()
    (name, *_) = json.loads(row.get_attribute("data-makes"))
    pressed(page, "m")
    assert f"{name} = " in current(page) or current(page).startswith(f"S {name}")
    made = current(page)
    said_of_reader = pressed(page, "u")
    assert said_of_reader.startswith(f"{name}: ") and current(page) != made and name in current(page)
    pressed(page, "b")
    assert current(page) == made
    pressed(page, "ArrowDown")
    assert current(page) != made
    pressed(page, "ArrowUp")
    assert current(page) == made


def test_without_a_script_the_page_says_the_same(browser, saved):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(saved.as_uri())
        assert page.get_by_role("search").count() == 0
        assert page.get_by_text("a = x @ p.layers.0").first.is_visible()
        assert "\n" in page.locator("pre").first.inner_text()


def test_columns_line_up_whatever_font_the_page_around_them_has(browser, saved):
    page = browser.new_page()
    page.goto(saved.as_uri())
    page.add_style_tag(content="body, body pre { font-family: system-ui }")  # as in the pages that nbconvert writes
    fonts = page.locator("pre, .rs-table").evaluate_all("all => all.map(each => getComputedStyle(each).fontFamily)")
    assert set(fonts) == {"ui-monospace, monospace"}
    page.close()


def test_a_narrow_window_wraps_code_and_cuts_off_no_bytes(browser, tmp_path):
    def sums(weights, inputs):
        return jnp.sum(jnp.sin(weights["hidden"] @ weights["output"] @ inputs["queries"]))

    square = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    arguments = {"hidden": square, "output": square}, {"queries": square}
    SideBySide(trace(jax.checkpoint(sums), *arguments)).save(tmp_path / "sums.html")
    page = browser.new_page(viewport={"width": 430, "height": 700})
    page.goto((tmp_path / "sums.html").as_uri())
    hidden = "all => all.map(each => each.scrollWidth - each.clientWidth)"
    assert page.locator(".rs-programs td").evaluate_all(hidden) == [0, 0]
    page.close()

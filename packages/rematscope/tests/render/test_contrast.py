"""Every color has sufficient contrast with its background, in both themes (WCAG 2.2, 1.4.3 and 1.4.11)."""

import itertools
import re
from pathlib import Path

import pytest

import rematscope.render
import rematscope.reporting
from rematscope.memory.timeline import BANDS
from rematscope.render.theme import (
    BADGES,
    COLOURS,
    HIGHLIGHTS,
    KINDS,
    ODD_BRIGHTNESS,
    PALETTE,
    PLOT_GROUND,
    PLOT_INK,
)  # fmt: skip

TEXT, GRAPHICS = 4.5, 3.0
# Backgrounds that a page's text may have: those of JupyterLab, VS Code, a browser and the report.
GROUNDS = (("#ffffff", "#f6f8fa"), ("#111111", "#1e1e1e", "#121212", "#0f1318", "#181d24"))
Channels = list[float]


def channels(color: str) -> Channels:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def luminance(color: Channels) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Channels, other: Channels) -> float:
    dark, light = sorted(luminance(color) + 0.05 for color in (one, other))
    return light / dark


def inverted(color: str) -> Channels:
    """The color below `filter: invert(0.93) hue-rotate(180deg)`, as Filter Effects defines both."""
    red, green, blue = (c * (1 - 0.93) + (1 - c) * 0.93 for c in channels(color))
    gray = 2 * (0.213 * red + 0.715 * green + 0.072 * blue)
    return [min(max(gray - c, 0.0), 1.0) for c in (red, green, blue)]


def test_contrast_is_as_wcag_defines_it():
    assert contrast(channels("#000000"), channels("#ffffff")) == pytest.approx(21)
    assert contrast(channels("#797979"), channels("#ffffff")) == pytest.approx(4.35, abs=0.01)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", sorted(PALETTE.keys() - {"paper", "card"}))
def test_text_on_each_ground(name, dark):
    ink = channels(PALETTE[name][dark])
    assert {g: contrast(ink, channels(g)) for g in GROUNDS[dark] if contrast(ink, channels(g)) < TEXT} == {}


def test_text_with_its_own_background():
    pairs = list(itertools.chain.from_iterable(HIGHLIGHTS.values()))
    pairs += [re.findall("#[0-9a-f]{6}", style) for style in BADGES.values()]
    pairs += [("#ffffff", PALETTE["S"][0])]  # a pressed button
    assert [pair for pair in pairs if contrast(*map(channels, pair)) < TEXT] == []
    for factor in (1.0, ODD_BRIGHTNESS):
        fills = {kind: [min(factor * c, 1.0) for c in channels(color)] for kind, color in KINDS.items()}
        assert [kind for kind, fill in fills.items() if contrast(fill, channels("#ffffff")) < TEXT] == []


def test_plots_in_both_themes():
    assert contrast(channels(PLOT_INK), channels(PLOT_GROUND)) >= TEXT
    assert contrast(inverted(PLOT_INK), inverted(PLOT_GROUND)) >= TEXT
    colors = {*COLOURS.values(), *KINDS.values(), *BANDS.values()}
    assert [c for c in colors if contrast(channels(c), channels(PLOT_GROUND)) < GRAPHICS] == []
    assert [c for c in colors if contrast(inverted(c), inverted(PLOT_GROUND)) < GRAPHICS] == []


def test_the_colors_of_memory_kinds_contrast_with_the_page():
    kinds = {
        kind: [contrast(channels(color), channels(paper)) for paper in PALETTE["paper"]]
        for kind, color in KINDS.items()
    }
    assert {kind: found for kind, found in kinds.items() if min(found) < GRAPHICS} == {}


def test_colors_are_in_one_place():
    folders = [Path(module.__file__).parent for module in (rematscope.render, rematscope.reporting)]
    files = [path for folder in folders for path in folder.iterdir() if path.suffix in (".py", ".css", ".js")]
    found = {path.name: re.findall("#[0-9a-f]{6}\\b", path.read_text(encoding="utf-8")) for path in files}
    assert {name: colors for name, colors in found.items() if colors and name != "theme.py"} == {}

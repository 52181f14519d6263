"""The colors of the views and their style sheet."""

# Every color of a page, in a light theme and in a dark one. Each has a contrast of at least 4.5 with each ground of its
# theme (tests/render/test_contrast.py). Letters say the same without color.
PALETTE = {
    "S": ("#005a8f", "#6cbcf5"),
    "R": ("#a34700", "#ffa45c"),
    "D": ("#8a3a6b", "#ee9fcb"),
    "soft": ("#57606a", "#a3adb8"),  # types and source lines
    "mark": ("#946200", "#ffd257"),  # the border of a marked line
    "focus": ("#0b6bcb", "#6cbcf5"),
    "paper": ("#ffffff", "#0f1318"),  # colors of the report's page, like the five below
    "card": ("#f6f8fa", "#181d24"),
    "ink": ("#1b1f24", "#e6edf3"),
    "accent": ("#0b5cad", "#6cb6ff"),
    "good": ("#116329", "#56d364"),
    "bad": ("#a40e26", "#ff8f87"),
}

# Colors of highlighted text: (background, text) in a light theme and in a dark one.
HIGHLIGHTS = {"lit": (("#ffe9a8", "#3d2b00"), ("#5a4300", "#fff1c9"))}

# What fills memory. Each is readable below white text and has a contrast of 3 with either theme's ground.
KINDS = {
    "parameters": "#5b6470",
    "optimizer state": "#7a5c99",
    "arguments": "#6f6a5e",
    "outputs": "#a8447a",
    "gradients": "#00765a",
    "saved activations": "#0b66a8",
    "recomputed": "#b04a00",
    "temporaries": "#806500",
}

ODD_BRIGHTNESS = 1.1  # the brightness of every second band among adjacent bands of the same kind

# Of a plot, which has a ground of its own: a dark theme inverts it (`rs-picture` in `PICTURES`).
PLOT_GROUND, PLOT_INK = "#ffffff", "#1b1f24"
# Based on the palette of Okabe and Ito, which color-blind readers can distinguish.
COLOURS = {"S": "#0072b2", "R": "#d55e00", "D": "#b85c94"}

# A terminal's ground may have any color, on which none of ours can be relied upon. A colored letter therefore has its
# own ground, and all other text has the terminal's colors.
BADGES = {letter: f"bold #ffffff on {PALETTE[letter][0]}" for letter in "SRD"}
TERMINAL = {
    "rs-S": "bold",
    "rs-R": "bold",
    "rs-D": "bold",
    "rs-B": "",
    "rs-type": "",
    "rs-source": "",
    "rs-marked": "reverse",
    "rs-header": "",
}

# Selects ancestors that indicate a dark theme, in JupyterLab, VS Code and Colab.
DARK = ':is([data-jp-theme-light="false"], .vscode-dark, [theme="dark"])'


def variables(dark: bool) -> str:
    """Return the palette of one theme as CSS variables, `--rs-S: #005a8f; …`."""
    colors = {name: pair[dark] for name, pair in PALETTE.items()}
    for name, pairs in HIGHLIGHTS.items():
        colors[f"{name}-ground"], colors[f"{name}-text"] = pairs[dark]
    return " ".join(f"--rs-{name}: {color};" for name, color in colors.items())


# Without this sheet (on GitHub, in an untrusted notebook) the text is still aligned in columns, with spaces.
# A line of a program is a row of a grid whose columns for code and source lines shrink, so that two programs fit next
# to each other. The file and the line number of a source are always shown; its function is left out first. In a narrow
# container, text is smaller, so that the bytes of a program's last column are visible.
SHEET = (
    f"""<style>
:is(.rematscope, .rs-pane) {{ {variables(dark=False)} }}
{DARK} :is(.rematscope, .rs-pane) {{ {variables(dark=True)} }}
"""
    + """.rematscope { color: inherit; container-type: inline-size; }
.rematscope .rs-programs, .rematscope .rs-programs tbody { display: block; width: 100%; margin: 0; border: 0; }
/* The border left of a program separates it from the previous one. In the first column, the border is clipped. */
.rematscope .rs-programs tr { display: flex; flex-wrap: wrap; gap: 1em calc(2em + 1px); background: none !important;
  clip-path: inset(0 -100vw 0 0); }
.rematscope .rs-programs td { display: block; padding: 0 0 0 1em; margin-left: calc(-1em - 1px); border: 0;
  border-left: 1px solid #8888; text-align: left; box-sizing: content-box;
  vertical-align: top; overflow-x: auto;
  font: clamp(10px, 2.4cqi, 12px)/1.35 var(--jp-code-font-family, ui-monospace, monospace); }
.rematscope.rematscope pre, .rematscope .rs-table { font-family: var(--jp-code-font-family, ui-monospace, monospace); }
.rematscope .rs-table { margin: 0; font-size: clamp(10px, 2.4cqi, 12px); }
.rematscope .rs-table th, .rematscope .rs-table td { text-align: left; padding: 2px 1em 2px 0; max-width: none;
  vertical-align: top; }
.rs-scroll { overflow-x: auto; }
.rs-table td:last-child { min-width: 14ch; overflow-wrap: anywhere; }
.rematscope p { margin: 0.3em 0 0.6em; max-width: 110ch; }
.rematscope.rematscope pre { margin: 0; padding: 0; background: none; color: inherit; line-height: 1.35;
  font-size: 12px; white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; }
.rematscope .rs-programs pre { display: grid; grid-template-columns: var(--rs-columns); font-size: inherit; }
.rs-programs :is(.rs-row, .rs-line) { display: grid; grid-column: 1 / -1; grid-template-columns: subgrid; }
.rs-line > * { white-space: pre; }
.rs-line > :only-child { grid-column: 1 / -1; white-space: pre-wrap; }
.rs-line > :nth-child(2) { padding-left: 4ch; text-indent: -4ch; white-space: pre-wrap; }
.rs-line > :nth-child(2):last-child { grid-column: 2 / -1; }
/* A function's name that does not fit wraps to a second line, which is hidden. */
.rs-line > .rs-source { padding-left: 2ch; display: flex; flex-wrap: wrap; gap: 0 1ch; height: 1.35em; overflow: hidden;
  white-space: nowrap; }
.rs-header { display: inline-block; width: 0; min-width: 100%; white-space: normal; }
.rs-S, .rs-R, .rs-D { font-weight: 600; }
.rs-S { color: var(--rs-S); } .rs-R { color: var(--rs-R); } .rs-D { color: var(--rs-D); }
.rs-type, .rs-source { color: var(--rs-soft); }
</style>"""
)

# A separate sheet, added only to pages with marked lines.
MARKS = """<style>
.rs-marked { font-weight: 600; }
.rs-line:has(> .rs-marked) { background: var(--rs-lit-ground); outline: 1px solid var(--rs-mark);
  outline-offset: -1px; }
.rs-line:has(> .rs-marked) > * { color: var(--rs-lit-text); }
</style>"""

# A sheet for pages with folded lines.
FOLDS = """<style>
.rs-programs details { grid-column: 1 / -1; }
.rematscope summary { cursor: pointer; list-style: none; }
.rematscope summary:hover, .rematscope details[open] > summary { background: #8882; }
</style>"""

# A sheet for pages with a search bar, which a script creates.
SEARCHED = """<style>
.rs-search { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: 4px 6px; align-items: center;
  padding: 4px 0; background: var(--jp-layout-color0, canvas); font: 13px var(--jp-ui-font-family, system-ui); }
.rs-search :is(input, button) { font: inherit; color: inherit; background: transparent; padding: 2px 6px;
  border: 1px solid #888; border-radius: 3px; }
.rs-search input { width: 16em; max-width: 100%; }
.rs-search :is(input, button):focus-visible, .rs-row:focus-visible { outline: 2px solid var(--rs-focus);
  outline-offset: -1px; }
.rs-search button[aria-pressed="true"] { background: #005a8f; color: #fff; }
.rs-row.rs-match { background: #8883; }
.rs-row.rs-current { background: var(--rs-lit-ground); color: var(--rs-lit-text); }
.rs-row.rs-current * { color: inherit; } .rs-programs .rs-row[hidden] { display: none; }
</style>"""

# A sheet for plots, whose background is white. A dark theme inverts them and keeps their hues.
PICTURES = f"""<style>
.rs-picture {{ max-width: 100%; height: auto; }}
.rs-pictures {{ display: flex; flex-wrap: wrap; gap: 0 1em; }}
{DARK} .rs-picture {{ filter: invert(0.93) hue-rotate(180deg); }}
</style>"""

# The sheet of a standalone page.
DOCUMENT = """<style>
:root { color-scheme: light dark; }
body { margin: 1.5em; color: canvastext; background: canvas; font: 13px system-ui, sans-serif; }
.rs-table { border-spacing: 0; }
</style>"""

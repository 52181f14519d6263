"""The colours of the views and their style sheet."""

# Okabe and Ito's colours, which the colour-blind can tell apart, for pictures. Letters say the same without colour.
COLOURS = {"S": "#0072b2", "R": "#d55e00", "D": "#cc79a7"}

# A terminal's ground may have any colour, on which no colour of ours can be relied upon: what has one brings its own
# ground along, and stays short. All else is in the terminal's own.
BADGES = {"S": "bold #ffffff on #005a8f", "R": "bold #ffffff on #a34700", "D": "bold #ffffff on #8a3a6b"}
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

# What stands above it where a dark theme is on: in JupyterLab, in VS Code, in Colab.
DARK = ':is([data-jp-theme-light="false"], .vscode-dark, [theme="dark"])'

# Without this sheet (GitHub, an untrusted notebook) the text still stands in its columns.
SHEET = """<style>
.rematscope { color: inherit; container-type: inline-size; }
.rematscope .rs-programs, .rematscope .rs-programs tbody { display: block; width: 100%; margin: 0; border: 0; }
.rematscope .rs-programs tr { display: flex; flex-wrap: wrap; gap: 0 1em; background: none !important; }
.rematscope .rs-programs td { display: block; flex: 0 1 auto; padding: 0; border: 0; text-align: left;
  vertical-align: top; max-width: 100%; overflow-x: auto; }
.rematscope .rs-programs td + td { border-left: 1px solid #8888; padding-left: 1em; }
.rematscope.rematscope pre, .rematscope .rs-table { font-family: var(--jp-code-font-family, ui-monospace, monospace); }
.rematscope .rs-table { margin: 0; font-size: 12px; }
.rematscope .rs-table th, .rematscope .rs-table td { text-align: left; padding: 2px 1em 2px 0; max-width: none; }
.rematscope p { margin: 0.3em 0 0; font-weight: 600; }
.rs-pictures { display: flex; flex-wrap: wrap; gap: 0 1em; }
.rematscope.rematscope pre { margin: 0; padding: 0; background: none; color: inherit; line-height: 1.35;
  font-size: 12px; white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere;
  text-indent: 5ch hanging each-line; }
.rs-header { display: inline-block; width: 0; min-width: 100%; white-space: normal; text-indent: 0; }
.rs-S, .rs-R, .rs-D { font-weight: 600; }
.rs-S { color: #005a8f; } .rs-R { color: #a34700; } .rs-D { color: #8a3a6b; }
.rs-type, .rs-source { opacity: 0.75; }
DARK .rs-S { color: #6cbcf5; }
DARK .rs-R { color: #ffa45c; }
DARK .rs-D { color: #ee9fcb; }
@container (max-width: 1150px) { .rematscope .rs-source { display: none; } }
/* As on a telephone: what stands in a row stands in a line, or in several. */
@container (max-width: 480px) {
  .rematscope .rs-table:has(th:nth-child(6)), .rs-table:has(th:nth-child(6)) :is(thead, tbody, tr) { display: block; }
  .rs-table:has(th:nth-child(6)) tr { padding: 3px 0; border-bottom: 1px solid #8888; text-align: left; }
  .rematscope .rs-table:has(th:nth-child(6)) :is(th, td) { display: inline-block; padding: 0 1.5em 0 0; }
}
</style>""".replace("DARK", DARK)

# A sheet of its own, added only to a page on which something is marked.
MARKS = """<style>
.rs-marked { background: #ffedb3; border-block: 1px solid #946200; font-weight: 600; }
DARK .rs-marked { background: #4d3b00; border-color: #ffd257; }
</style>""".replace("DARK", DARK)

# And one for a page on which something is to be opened.
FOLDS = """<style>
.rematscope summary { cursor: pointer; list-style: none; }
.rematscope summary pre { display: inline-block; }
.rematscope summary:hover, .rematscope details[open] > summary { background: #8882; }
</style>"""

# And one for a page in which a reader searches; the bar is made by a script, and is not there without it.
SEARCHED = """<style>
.rs-search { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: 4px 6px; align-items: center;
  padding: 4px 0; background: var(--jp-layout-color0, canvas); font: 13px var(--jp-ui-font-family, system-ui); }
.rs-search :is(input, button) { font: inherit; color: inherit; background: transparent; padding: 2px 6px;
  border: 1px solid #888; border-radius: 3px; }
.rs-search input { width: 16em; max-width: 100%; }
.rs-search :is(input, button):focus-visible, .rs-row:focus-visible { outline: 2px solid #0b6bcb; outline-offset: -1px; }
.rs-search button[aria-pressed="true"] { background: #005a8f; color: #fff; }
.rs-row.rs-match { background: #8883; } .rs-row.rs-current { background: #ffe9a8; color: #3d2b00; }
.rs-row.rs-current * { color: inherit; opacity: 1; } .rs-row[hidden] { display: none; }
DARK .rs-row.rs-current { background: #5a4300; color: #fff1c9; }
</style>""".replace("DARK", DARK)

# Of a page that stands by itself.
DOCUMENT = """<style>
:root { color-scheme: light dark; }
body { margin: 1.5em; font: 13px system-ui, sans-serif; }
.rs-table { border-spacing: 0; }
</style>"""

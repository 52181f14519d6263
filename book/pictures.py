"""Pictures for README and for the book's landing page, made from the saved pages.

    python -m book.pictures    write docs/side_by_side_light.png and docs/side_by_side_dark.png

Each PNG of README contains a fingerprint of the page's cell that it shows. `tests/test_book.py` compares it with the
current page, so that a picture of an older page fails CI.
"""

import base64
import hashlib
import json
import re
import shutil
import struct
import sys
import zlib
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).parents[1]
README_PICTURES = {theme: ROOT / "docs" / f"side_by_side_{theme}.png" for theme in ("light", "dark")}
_KEY = b"rematscope-page"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PAGE = """<html><style>
:root {{ color-scheme: {theme}; --jp-ui-font-color1: {text}; --jp-layout-color0: {ground}; }}
body {{ margin: 16px; width: 600px; background: {ground}; color: {text}; font: 14px/1.5 sans-serif; }}
.code {{ padding: 4px 12px; margin-bottom: 12px; border: 1px solid #8886; }} {style}
.code pre {{ margin: 0; font-size: 13px; }}
</style><body data-jp-theme-light="{light}"><div class="code">{code}</div>{output}</body></html>"""


def memory_over_time() -> bytes:
    """Return the picture of chapter 0: memory in use over time, without and with a checkpoint per layer."""
    cell = _find_cell("notebooks/00_start_here.ipynb", "row.timeline.plot(ax)")
    shown = "".join("".join(output["data"].get("text/html", "")) for output in cell["outputs"] if "data" in output)
    (image,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown)
    return base64.b64decode(image)


def shown_cell() -> tuple[str, str]:
    """Return the code and the HTML output of chapter 0's cell that README shows."""
    cell = _find_cell("notebooks/00_start_here.ipynb", "print_fwd_bwd(jax.checkpoint(two_sines)")
    (html,) = [output["data"]["text/html"] for output in cell["outputs"] if "text/html" in output.get("data", {})]
    return "".join(cell["source"]), "".join(html)


def _find_cell(page: str, text: str) -> dict:
    cells = json.loads((ROOT / page).read_text(encoding="utf-8"))["cells"]
    found = [cell for cell in cells if cell["cell_type"] == "code" and text in "".join(cell["source"])]
    if not found:
        raise LookupError(f"{page} has no code cell with {text!r}: name the cell of the picture in book/pictures.py.")
    return found[0]


def fingerprint() -> str:
    """Return a fingerprint of the cell that README shows."""
    return hashlib.sha256("\0".join(shown_cell()).encode()).hexdigest()


def fingerprint_in(picture: bytes) -> str | None:
    """Return the fingerprint in a PNG; None if it has none."""
    place = len(_SIGNATURE)
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        kind, data = picture[place + 4 : place + 8], picture[place + 8 : place + 8 + length]
        if kind == b"tEXt" and data.startswith(_KEY + b"\0"):
            return data.removeprefix(_KEY + b"\0").decode("latin-1")
        place += length + 12
    return None


def _with_fingerprint(picture: bytes) -> bytes:
    data = b"tEXt" + _KEY + b"\0" + fingerprint().encode()
    chunk = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    end = len(_SIGNATURE) + 25  # after IHDR, the first chunk, which is 25 bytes long
    return picture[:end] + chunk + picture[end:]


def write_readme_pictures(browser) -> None:
    """Write README's pictures with one of Playwright's browsers."""
    code, output = shown_cell()
    for theme, path in README_PICTURES.items():
        light = theme == "light"
        colors = HtmlFormatter(style="default" if light else "github-dark", nobackground=True)
        page = browser.new_page(color_scheme=theme, viewport={"width": 632, "height": 200}, device_scale_factor=2)
        page.set_content(
            _PAGE.format(
                theme=theme, light=str(light).lower(), style=colors.get_style_defs(".highlight"),
                code=highlight(code, PythonLexer(), colors), output=output,
                text="#1f2328" if light else "#e6edf3", ground="#ffffff" if light else "#0d1117",
            )
        )  # fmt: skip
        path.write_bytes(_with_fingerprint(page.screenshot(full_page=True)))
        page.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("python -m book.pictures needs Chromium on PATH (on Debian: apt install chromium).")
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work for root in a container; it opens nothing but a page of ours.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        write_readme_pictures(browser)
        browser.close()


if __name__ == "__main__":
    main()

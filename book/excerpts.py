"""Excerpts of pages in the book's search results.

Sphinx's search fetches the page of each result to show an excerpt. Browsers refuse to fetch local files, and a fetched
page's excerpt is often from its table of contents. So a script with the sections of all pages replaces `fetch`.
"""

import json
from html import escape
from html.parser import HTMLParser
from pathlib import Path

SCRIPT = "_static/excerpts.js"
_ANSWER = """
const root = new URL(document.documentElement.dataset.content_root, location.href).href;
window.fetch = async (address) => {
  const page = new URL(address, location.href).href.split("#")[0].slice(root.length);
  return new Response(EXCERPTS[decodeURIComponent(page)] ?? "", { status: page in EXCERPTS ? 200 : 404 });
};
"""


# Elements without text that a reader searches for; of links and foldable parts, only those of a class.
_LEFT_OUT = {"script": "", "style": "", "button": "", "a": "headerlink", "details": "to-run"}


class _Sections(HTMLParser):
    """The sections of a page with their texts, as HTML without any other element."""

    def __init__(self, path: Path):
        super().__init__()
        self.html: list[str] = []
        self._depth = 0  # of elements within the article
        self._left_out: list[bool] = []  # of the open elements with these tags, whether each is left out
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "article" and "bd-article" in (found.get("class") or ""):
            self._depth = 1
        elif self._depth and tag == "article":
            self._depth += 1
        if not self._depth:
            return
        if tag in _LEFT_OUT:
            self._left_out.append(_LEFT_OUT[tag] in (found.get("class") or ""))
        if tag == "section":
            self.html.append(f'<section id="{escape(found.get("id") or "")}">')

    def handle_endtag(self, tag: str) -> None:
        if not self._depth:
            return
        if tag in _LEFT_OUT:
            self._left_out.pop()
        if tag == "section":
            self.html.append("</section>")
        elif tag == "article":
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._depth and not any(self._left_out):
            self.html.append(escape(data))


def write_excerpts(site: Path) -> None:
    """Write the script into a built site, and load it in the search page."""
    excerpts = {}
    for path in sorted(site.rglob("*.html")):
        if sections := "".join(_Sections(path).html).strip():
            excerpts[path.relative_to(site).as_posix()] = f'<div role="main">{sections}</div>'
    script = f"const EXCERPTS = {json.dumps(excerpts)};\n{_ANSWER}"
    (site / SCRIPT).write_text(script, encoding="utf-8")
    search = site / "search.html"
    page = search.read_text(encoding="utf-8")
    search.write_text(page.replace("</head>", f'<script src="{SCRIPT}"></script>\n</head>', 1), encoding="utf-8")

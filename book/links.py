"""Broken links in a built site."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The addresses that a page links to, and the anchors that it defines."""

    def __init__(self, path: Path):
        super().__init__()
        self.addresses: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places.update(value for name in ("id", "name") if (value := found.get(name)))
        self.addresses += [value for name in ("href", "src", "srcset") if (value := found.get(name))]


def broken(site: Path) -> list[str]:
    """Returns each link within a site to a missing file or a missing anchor, as `page: address`."""
    pages = {path.resolve(): _Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for address in page.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            place = unquote(parts.fragment)
            missing = target in pages and place and place not in pages[target].places
            if missing or not target.exists():
                found.append(f"{path.relative_to(site.resolve())}: {address}")
    return found

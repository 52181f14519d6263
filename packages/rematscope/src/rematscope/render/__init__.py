"""Display views: in a terminal through rich, in JupyterLab as HTML, on GitHub as text. Independent of JAX."""

from rematscope.render.figure import figure
from rematscope.render.files import write_whole
from rematscope.render.html import html_page
from rematscope.render.parts import Lines
from rematscope.render.progress import progress as progress_bar
from rematscope.render.theme import COLOURS
from rematscope.render.units import bar_text, bytes_text, joined
from rematscope.render.view import View, plain_text
from rematscope.render.widget import live

__all__ = [
    "COLOURS",
    "Lines",
    "View",
    "bar_text",
    "bytes_text",
    "figure",
    "html_page",
    "joined",
    "live",
    "plain_text",
    "progress_bar",
    "write_whole",
]

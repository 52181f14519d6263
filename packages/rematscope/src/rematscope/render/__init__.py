"""How a view reaches the reader: a terminal through rich, JupyterLab as HTML, GitHub as text. Knows no JAX."""

from rematscope.render.figure import figure
from rematscope.render.parts import Lines
from rematscope.render.widget import live

__all__ = ["Lines", "figure", "live"]

"""Sphinx's settings for the book."""

import json
import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from book import running

project = "Remat Workbook"
author = "The Remat Workbook developers"
copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_math_renderer = "mathml"  # which browsers draw by themselves; MathJax would be fetched from a host of its own
exclude_patterns = ["static", "as_it_is"]

# Pages are stored with their outputs: nothing is run.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "groupwise"
autodoc_typehints = "description"
autosummary_generate = False  # its tables of first sentences alone
napoleon_use_ivar = True

html_theme = "sphinx_book_theme"
html_title = project
html_favicon = "static/favicon.svg"
html_static_path = []
html_copy_source = True  # a page's own notebook is what "download" gives
html_show_sourcelink = True
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_context = {"default_mode": "auto"}  # the system's theme
highlight_language = "none"  # a block that names no language is a message or a drawing
html_theme_options = {
    "use_download_button": True,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "navbar_persistent": [],  # the theme's other search button is next to the pages
}
copybutton_selector = ":is(.cell_input, .highlight-sh, .highlight-python, .highlight-ipython3) pre"


def setup(app):
    # These folders are copied next to the pages in each build.
    app.config.html_static_path = [str(app.srcdir / "static")]
    app.config.html_extra_path = [str(app.srcdir / "as_it_is")]
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    app.connect("source-read", _prepared)
    app.add_config_value("repository", None, "html", types=[str])
    app.connect("config-inited", _with_links_to_run)
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=400)  # before napoleon reads it


def _as_restructured_text(app, what, name, obj, options, lines):
    """Docstrings have code in single backquotes, and arguments called *args: to reStructuredText both are mark-up. What
    a module's docstring indents is code."""
    if what == "module":
        lines[:] = re.sub(r"(?<=\n\n)(?=    )", "::\n\n", "\n".join(lines)).splitlines()
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``\\ ", "\n".join(lines))
    lines[:] = re.sub(r"\*+(?=args\b|kwargs\b)", lambda stars: r"\*" * len(stars[0]), text).splitlines()


def _formula(translator, node):
    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def _prepared(app, name, source):
    """What is folded in JupyterLab is folded here: MyST-NB asks for a tag. Below its title stands how to run it."""
    if str(app.env.doc2path(name)).endswith(".ipynb"):
        page = json.loads(source[0])
        for cell in page["cells"]:
            if cell["metadata"].get("jupyter", {}).get("source_hidden"):
                cell["metadata"].setdefault("tags", []).append("hide-input")
        running.say_how_to_run(page, f"{name}.ipynb", app.config.repository)
        source[0] = json.dumps(page)


def _with_links_to_run(app, config):
    """Where there is a public repository, each page leads to where it runs without being copied."""
    if config.repository:
        config.html_theme_options |= {
            "repository_url": config.repository,
            "repository_branch": running.BRANCH,
            "launch_buttons": {
                "notebook_interface": "jupyterlab",
                "binderhub_url": "https://mybinder.org",
                "colab_url": running.COLAB,
            },
        }

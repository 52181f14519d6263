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
html_math_renderer = "mathml"  # rendered by browsers; MathJax would be downloaded from another host
exclude_patterns = ["static", "as_it_is"]

# The pages contain their outputs, so the build runs nothing.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "groupwise"
autodoc_typehints = "description"
autosummary_generate = False  # only the tables of first sentences
napoleon_use_ivar = True

html_theme = "sphinx_book_theme"
html_title = project
html_favicon = "static/favicon.svg"
html_static_path = []
html_copy_source = True  # "download" returns the page's notebook
html_show_sourcelink = True
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_context = {"default_mode": "auto"}  # follow the system's theme
highlight_language = "none"  # a block without a language is a message or a diagram
html_theme_options = {
    "use_download_button": True,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "navbar_persistent": [],  # the theme has another search button in the sidebar
}
copybutton_selector = ":is(.cell_input, .highlight-sh, .highlight-python, .highlight-ipython3) pre"


def setup(app):
    # The build copies these folders next to the pages.
    app.config.html_static_path = [str(app.srcdir / "static")]
    app.config.html_extra_path = [str(app.srcdir / "as_it_is")]
    app.add_html_math_renderer("mathml", (_write_formula, None), (_write_formula, None))
    app.connect("source-read", _prepare_page)
    app.add_config_value("repository", None, "html", types=[str])
    app.connect("config-inited", _with_links_to_run)
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=400)  # before napoleon reads it


def _as_restructured_text(app, what, name, obj, options, lines):
    """Converts docstrings to reStructuredText: code in single backquotes, names such as *args, and the indented code in
    the docstrings of modules."""
    if what == "module":
        lines[:] = re.sub(r"(?<=\n\n)(?=    )", "::\n\n", "\n".join(lines)).splitlines()
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``\\ ", "\n".join(lines))
    lines[:] = re.sub(r"\*+(?=args\b|kwargs\b)", lambda stars: r"\*" * len(stars[0]), text).splitlines()


def _write_formula(translator, node):
    formula = tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
    # Without a math font, Chromium draws the bar of an accent on top of the letter, where it cannot be seen.
    translator.body.append(formula.replace(' accent="true"', ""))
    raise nodes.SkipNode


def _prepare_page(app, name, source):
    """Folds the cells and outputs that are folded in JupyterLab, and adds below the title how to run the page."""
    if str(app.env.doc2path(name)).endswith(".ipynb"):
        page = json.loads(source[0])
        for cell in page["cells"]:
            folded = cell["metadata"].get("jupyter", {})
            code, output = folded.get("source_hidden"), folded.get("outputs_hidden")
            if code or output:
                part = "cell" if code and output else "input" if code else "output"
                cell["metadata"].setdefault("tags", []).append(f"hide-{part}")
        running.say_how_to_run(page, f"{name}.ipynb", app.config.repository)
        source[0] = json.dumps(page)


def _with_links_to_run(app, config):
    """Adds links that run each page in Binder or Colab, if there is a public repository."""
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

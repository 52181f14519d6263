"""Documents, pages and messages use the field's terms: a short list of words to avoid, each with its replacement.

CONTRIBUTING's table of terms is longer; this list only has words that have no other meaning in a message.
"""

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import rematscope

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "SECURITY.md", "packages/rematscope/README.md", "benchmarks/README.md"]
DOCUMENTS += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))]
SOURCES = [ROOT / "packages" / "rematscope" / "src" / "rematscope", ROOT / "grader"]
TERMS = {
    r"\bforet(ell|old|ells|elling)\b": "predict, estimate",
    r"\bcomput(e|es|ed|ing) (\w+ ){0,3}again\b": "recompute",
    r"\b(made|makes?) (\w+ )?again\b|\banew\b": "recompute, again",
    r"\bsets? aside\b|\bsetting aside\b": "allocate",
    r"\bas (it|they) stands?\b": "as written, unmodified",
    r"\bwhat (waits|crosses|is kept|goes into|comes out of)\b": "the residuals, the inputs, the outputs",
    r"\b(is|are|was|were) kept (for|on|until|by)\b|\bwhat is kept\b": "is saved",
    r"\bthere is (no )?room\b|\bfinds? no room\b|\bmore room\b": "memory, it fits",
    r"\bspares? (\w+ )?(of|for|most|more|less|nothing)\b": "avoids, saves",
    r"\b(one|checkpoint) a layer\b": "one per layer",
    r"\b(like|alike) layers\b": "identical layers",
    r"\bwritten out\b": "unrolled",
    r"\bwhoever\b|\bnobody\b|\bsomebody\b|\beverybody\b|\bat all events\b": "name the person, or cut",
    r"(?<!-)\bnets?\b": "model",
    r"\bbut for\b|\bbeside\b": "except; next to, compared with, in addition to",
    r"\bmatrix products?\b": "matmul",
    r"\ba policy says yes\b": "returns True",
    r"\bdivided (over|among) devices\b": "sharded across devices",
    r"\b(is|are) told\b": "active voice",
}


def documents() -> Iterator[tuple[str, str]]:
    for name in DOCUMENTS:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / name).read_text(), flags=re.DOTALL)
        yield from ((f"{name}:{i}", line) for i, line in enumerate(text.splitlines(), 1))


def pages() -> Iterator[tuple[str, str]]:
    for path in sorted([*ROOT.glob("notebooks/[0-9c]*.ipynb"), *ROOT.glob("exercises/[0-9]*.ipynb")]):
        for number, cell in enumerate(json.loads(path.read_text())["cells"]):
            if cell["cell_type"] == "markdown":
                text = re.sub(r"```.*?```|`[^`\n]*`", "", "".join(cell["source"]), flags=re.DOTALL)
                yield from ((f"{path.name}, cell {number}", line) for line in text.splitlines())


def public_docstrings() -> Iterator[tuple[str, str]]:
    for name in rematscope.__all__:
        thing = getattr(rematscope, name)
        yield name, inspect.getdoc(thing) or ""
        for part, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not part.startswith("_") and getattr(value, "__module__", "rematscope").startswith("rematscope"):
                yield f"{name}.{part}", inspect.getdoc(value) or ""


def messages() -> Iterator[tuple[str, str]]:
    """Yield the strings of at least four words in the source, except docstrings: the messages that people see."""
    for path in (path for folder in SOURCES for path in sorted(folder.rglob("*.py"))):
        tree = ast.parse(path.read_text())
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if is_text and len(node.value.split()) >= 4:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", re.sub(r"`[^`]*`", "", node.value)


def feedback() -> Iterator[tuple[str, str]]:
    """Yield the texts in data files: hints, known mistakes and questions about errors."""
    for path in sorted((ROOT / "grader").rglob("*.toml")):
        for text in strings_in(tomllib.loads(path.read_text())):
            yield str(path.relative_to(ROOT)), re.sub(r"`[^`]*`", "", text)


def strings_in(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for part in data.values() if isinstance(data, dict) else data:
            yield from strings_in(part)


@pytest.mark.parametrize(
    "texts", [documents, pages, public_docstrings, messages, feedback], ids=lambda texts: texts.__name__
)
def test_texts_use_the_fields_terms(texts):
    found = [*texts()]
    assert len(found) > 50, "this looks where the texts are"
    assert [
        f"{place}: {match[0]!r} → {instead}"
        for place, text in found
        for term, instead in TERMS.items()
        for match in re.finditer(term, " ".join(text.split()), re.IGNORECASE)
    ] == []


@pytest.mark.parametrize(
    "text", ["its residuals are computed once again", "what is kept for later", "a checkpoint a layer", "as it stands"]
)
def test_the_word_list_finds_its_examples(text):
    assert any(re.search(term, text) for term in TERMS)

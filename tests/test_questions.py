"""docs/questions.md and the pages out_of_memory, devices and experts: snippets run, and each answer has a link."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parent.parent
OPENING, *QUESTIONS = re.split(r"^### ", (ROOT / "docs" / "questions.md").read_text(), flags=re.MULTILINE)
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
# The assertions of these questions hold for JAX's default rematerialization only; their text describes `jax_remat3`.
DIFFERENT_UNDER_REMAT3 = {"What changes with `jax_remat3`?", "Flash attention is recomputed although I save its output"}


def title_of(question: str) -> str:
    return question.partition("\n")[0]


@pytest.fixture(scope="module")
def definitions():
    """Return the names that the page defines for all its snippets."""
    namespace = {}
    exec(SNIPPET.search(OPENING)[1], namespace)
    return namespace


@pytest.fixture
def remat3(request):
    before = jax.config.jax_remat3
    jax.config.update("jax_remat3", request.param)
    yield request.param
    jax.config.update("jax_remat3", before)


def in_both_modes():
    """Yield each question with a snippet in both modes. With remat3, questions whose answers do not differ are marked
    slow, except one in ten. Without it, every second question is."""
    chosen = int(os.environ["REMAT_SEED"])
    for i, question in enumerate(q for q in QUESTIONS if SNIPPET.search(q)):
        title = title_of(question)
        usual = title in DIFFERENT_UNDER_REMAT3 or (i - chosen) % 10 == 0
        yield pytest.param(question, False, id=f"default-{title}", marks=pytest.mark.slow if i % 2 else [])
        yield pytest.param(question, True, id=f"remat3-{title}", marks=[] if usual else pytest.mark.slow)


@pytest.mark.parametrize(("question", "remat3"), list(in_both_modes()), indirect=["remat3"])
def test_the_assertions_of_answers_hold(question, definitions, remat3):
    snippet = SNIPPET.search(question)[1]
    assert "assert " in snippet
    differs = remat3 and title_of(question) in DIFFERENT_UNDER_REMAT3
    with (
        contextlib.redirect_stdout(io.StringIO()),
        pytest.raises(AssertionError) if differs else contextlib.nullcontext(),
    ):
        exec(snippet, dict(definitions))


def test_an_answer_that_differs_under_remat3_says_so():
    answers = {title_of(question): SNIPPET.sub("", question) for question in QUESTIONS}
    assert set(answers) >= DIFFERENT_UNDER_REMAT3
    assert [title for title in DIFFERENT_UNDER_REMAT3 if "jax_remat3" not in answers[title]] == []


@pytest.mark.slow
def test_the_path_from_an_error_to_a_configuration_runs():
    namespace = {}
    page = (ROOT / "docs" / "out_of_memory.md").read_text()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for snippet in SNIPPET.findall(page):
            exec(snippet, namespace)
    assert namespace["advice"].best.peak_bytes < namespace["advice"].peak_bytes
    (quoted,) = re.findall(r"`(step does not fit .*)`", page)
    assert quoted in printed.getvalue()
    assert f"needs {namespace['advice'].best.peak_bytes / 2**20:.1f} MiB" in page


@pytest.mark.parametrize(("page", "outputs"), [pytest.param("devices", 4, marks=pytest.mark.slow), ("experts", 4)])
def test_a_page_prints_the_shown_output(page, outputs):
    namespace = {}
    text = (ROOT / "docs" / f"{page}.md").read_text()
    shown = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for snippet in SNIPPET.findall(text):
            exec(snippet, namespace)
    unpadded = re.sub(r" +$", "", printed.getvalue(), flags=re.MULTILINE)  # an editor strips the page's lines
    assert len(shown) == outputs and [block for block in shown if block not in unpadded] == []


CIRCULAR_PIPELINE = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P

names = {"jax": jax, "jnp": jnp, "P": P, "eight": jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))}
exec(sys.stdin.read(), names)
keys = jax.random.split(jax.random.key(0), 3)
up, down = (jax.random.normal(key, (16, *shape)) / 6 for key, shape in zip(keys, [(16, 32), (32, 16)]))
for rounds, microbatches, inside in (1, 8, True), (2, 16, True), (2, 8, False):
    x = jax.random.normal(keys[2], (4 * microbatches, 16))
    by_device = lambda w: w.reshape(rounds, 8, 2 // rounds, *w.shape[1:]).swapaxes(0, 1)
    loss = names["circular"](jax.checkpoint, microbatches, rounds, inside)
    found = jax.jit(jax.grad(lambda up, down: loss(by_device(up), by_device(down), x), argnums=(0, 1)))(up, down)
    layer = lambda x, w: (x + jnp.tanh(x @ w[0]) @ w[1], None)
    expected = jax.grad(lambda up, down: jnp.mean(jax.lax.scan(layer, x, (up, down))[0] ** 2), argnums=(0, 1))(up, down)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
print("equal")
"""


@pytest.mark.slow
def test_the_circular_pipeline_of_the_page_devices_runs_the_layers_in_order():
    page = (ROOT / "docs" / "devices.md").read_text()
    (snippet,) = (each for each in SNIPPET.findall(page) if "def circular" in each)
    definition = snippet.partition("def stages_of")[0]
    given = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    command = [sys.executable, "-c", CIRCULAR_PIPELINE]
    done = subprocess.run(command, input=definition, capture_output=True, text=True, env=given, timeout=300)
    assert done.stdout == "equal\n", done.stderr


@pytest.mark.parametrize("question", QUESTIONS, ids=title_of)
def test_an_answer_links_to_a_page_and_to_its_question(question):
    assert re.search(r"\]\((\.\./(notebooks|exercises)/|\w+\.md)", question), "no page of the workbook"
    assert "](https://github.com/" in question or "cuDNN is not detected" in question, "no source"


def test_the_answers_are_short():
    """Readers find a question by searching, so the page may get more questions, but each answer must stay short."""
    assert len(QUESTIONS) >= 45
    lengths = [len(question.split()) for question in QUESTIONS]
    assert sum(lengths) / len(lengths) <= 90 and max(lengths) <= 160

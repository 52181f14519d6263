"""Verdicts display themselves and survive a round trip through JSON; also the messages of `check` for objects that are
no answer."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import jax.numpy as jnp
import pytest

from grader import check
from grader.verdicts.verdict import Effect, Finding, Outcome, Verdict
from grader.verdicts.views import VerdictView
from rematscope.render.view import plain_text

VERDICT = Verdict(
    "checkpoint_dot_policy",
    "not passed",
    (
        Finding(
            "also saved",
            "Your forward pass saves one extra residual: relu's mask, bool[48,16], 768 B.",
            expected="h; and any arguments",
            got="relu's mask; and the argument x",
            nbytes=768,
            source="In [3], line 7 (f): y = a < b",
            next="Which function marks a computation?",
            cases=("float32", "bfloat16"),
        ),
        Finding("no barrier", "Beware.", advice=True),
    ),
)

TEXT = """\
Not passed yet: checkpoint_dot_policy
  1. Your forward pass saves one extra residual: relu's mask, bool[48,16], 768 B.
     expected: h; and any arguments
     yours: relu's mask; and the argument x
     in your code: In [3], line 7 (f): y = a < b
     fails for: float32; bfloat16
     next: Which function marks a computation?
  Advice: Beware."""


def test_a_verdict_is_the_same_text_in_every_way_of_asking_for_it():
    shown = VerdictView(VERDICT)
    assert str(shown) == repr(shown) == shown._repr_mimebundle_()["text/plain"] == TEXT == repr(VERDICT)


def test_a_narrow_terminal_shows_all_words_of_the_costs():
    effects = Effect("your answer", 44, 184), Effect("full recompute", 0, 18_400)
    text = plain_text(VerdictView(replace(VERDICT, effects=effects, scene="at the page's shapes")), 40)
    assert "…" not in text and all(word in text for word in ("recompute", "computed", "18,400", "FLOPs"))


def test_bars_are_as_long_as_their_share_of_the_largest_figure():
    effects = Effect("your answer", 10, 3_000), Effect("the worked answer", 760, 0), Effect("no checkpoint", 1_000, 1)
    for width in (80, 200):
        text = plain_text(VerdictView(replace(VERDICT, effects=effects, scene="at the page's shapes")), width)
        bars = [bar for line in text.splitlines() for bar in re.findall("[█▏▎▍▌▋▊▉]+", line)]
        assert bars == ["▏", "█" * 12, "█████████▏", "█" * 12, "▏"], "for 1, 100, 76, 100 and 0.03 %"


def test_a_narrow_terminal_shows_one_line_per_cost():
    effects = Effect("your answer", 4_441_112_576, 274_729_472, 8), Effect("the worked answer", 58_720_256, 136_314_880)
    text = plain_text(VerdictView(replace(VERDICT, effects=effects, scene="at the page's shapes")), 80)
    assert sum("FLOPs" in line and " B" in line for line in text.splitlines()) == 2


def test_the_costs_have_a_column_for_host_memory_if_an_answer_offloads():
    for host, shown in ((0, False), (4096, True)):
        effects = Effect("your answer", 0, 0, host), Effect("no checkpoint", 48, 0)
        view = VerdictView(replace(VERDICT, effects=effects, scene="at the page's shapes"))
        for text in (plain_text(view, 100), view.html()):
            assert ("In host memory" in text) is ("4,096 B" in text) is shown


def test_a_terminal_shows_the_programs_of_a_case_once_and_those_with_marks():
    again, saved = (
        Finding(kind, f"It is {kind}.", cases=("float32",), marked=marked, programs="forward")
        for kind, marked in (("recomputes", ()), ("also saved", (2,)))
    )
    for findings, marks in (((again, saved), ", with the residuals of this finding marked"), ((again,), "")):
        text = str(VerdictView(replace(VERDICT, findings=findings)))
        assert text.count("Forward and backward program") == 1 and f"answer (float32){marks}:" in text


class Words(HTMLParser):
    def __init__(self):
        super().__init__()
        self.words, self.open, self.styles = [], [], []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.styles.append(dict(attributes).get("style", ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_html_contains_the_text_without_styles():
    page = Words()
    page.feed(VerdictView(VERDICT).html())
    assert not page.open
    said = " ".join(" ".join(page.words).split())
    for finding in VERDICT.findings:
        assert finding.text in said
        assert all(label in said and words in said for label, words in finding.details())


def test_html_follows_the_theme():
    html = VerdictView(VERDICT).html()
    assert "var(--jp-ui-font-color1, inherit)" in html
    assert "color: #" not in html and "rgb" not in html and "background" not in html


def test_markup_in_a_verdicts_text_is_escaped():
    hostile = Verdict("<script>", "passed", (Finding("a", "<img src=x>", got="</td><b>"),), shown=("<i>",))
    html = VerdictView(hostile).html()
    assert not any(tag in html for tag in ("<script", "<img", "<i>", "<b>"))


def test_markup_is_not_interpreted_in_text():
    assert "[red]a[/red] [3]" in str(VerdictView(Verdict("[bold]x[/bold]", "passed", shown=("[red]a[/red] [3]",))))


@pytest.mark.parametrize("count", [4, 5])
def test_a_terminal_refers_to_the_page_for_a_long_list_of_cases(count):
    sentences = tuple(f"Sentence {number}." for number in range(count))
    lines = plain_text(VerdictView(Verdict("name", Outcome.PASSED, shown=sentences)), 80).split("\n")
    page = "check() on the exercise's page also shows what your answer does in each case."
    expected = sentences if count == 4 else (sentences[0], page)
    assert [line.strip() for line in lines[1:] if line.strip()] == [*expected]


@pytest.mark.parametrize("count", [1, 4, 5, 12])
def test_a_page_folds_a_long_list_of_cases_but_not_its_first_sentence(count):
    sentences = tuple(f"sentence {number}." for number in range(count))
    page = VerdictView(Verdict("an exercise", Outcome.PASSED, shown=sentences)).html()
    assert all(page.count(f"<li>{sentence}</li>") == 1 for sentence in sentences)
    visible = page.split("<details>")[0]
    assert sum(sentence in visible for sentence in sentences) == (count if count <= 4 else 1)


@pytest.mark.parametrize("outcome", ["passed", "not passed", "not attempted", "could not be judged"])
def test_a_verdict_survives_a_round_trip_through_json(outcome):
    verdict = Verdict(VERDICT.exercise, outcome, VERDICT.findings, shown=("a", "b"))
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_a_verdict_in_older_progress_is_read():
    stored = VERDICT.to_dict()
    for finding in stored["findings"]:
        del finding["includes"]  # the first versions did not store it
    assert [finding.text for finding in Verdict.from_dict(stored).findings] == [f.text for f in VERDICT.findings]
    assert VERDICT.findings


@pytest.mark.parametrize("change", [{"outcome": "great"}, {"findings": 3}, {"grade": 1}, {"findings": [{}]}])
def test_json_that_is_no_verdict_is_refused(change):
    with pytest.raises((ValueError, TypeError, KeyError)):
        Verdict.from_dict(VERDICT.to_dict() | change)


def checkpoint_dot_polcy(w1, w2, x): ...


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (3, "check takes the function itself, but got an int."),
        (jnp.ones((2, 3)), "got an array, float32[2, 3]."),
        (None, "got a NoneType."),
        (
            checkpoint_dot_polcy,
            "called checkpoint_dot_polcy, which is not an exercise; did you mean checkpoint_dot_policy?",
        ),
        (print, "called print, which is not an exercise"),
        (lambda x: x, "called <lambda>, which is not an exercise"),
    ],
)
def test_check_explains_which_arguments_it_takes(answer, words):
    verdict = check(answer).verdict
    assert verdict.outcome == "could not be judged"
    assert words in verdict.findings[0].text and verdict.findings[0].next

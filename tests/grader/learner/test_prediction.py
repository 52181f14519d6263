"""A question before the page shows the answer: a notebook checks it at once, other views show an answer to unfold."""

import html
import re
from pathlib import Path

import pytest

from grader import predict


def ask(answer, choices=()):
    """Return the question's controls by their labels, and the element that shows the reply."""
    _, row, below, _ = predict("How many `residuals`?", lambda: answer, choices).widget().children
    return {control.description: control for control in row.children}, below


@pytest.mark.parametrize(
    ("answer", "said", "reply"),
    [
        (4, "4", "Right: 4."),
        (1024, "1,024", "Right: 1024."),
        (4, "5", "Not 5: it is less."),
        (400, "401", "Not 401: it is less."),
        (4, "3", "Not 3: it is more."),
        (2.66, "2.7", "Right: 2.66."),
        (2.66, "3", "Not 3: it is less."),
        (4, "four", "is not a number"),
    ],
)
def test_an_integer_must_be_exact_and_another_number_approximate(answer, said, reply):
    controls, below = ask(answer)
    controls["number"].value = said
    assert reply in below.value


def test_the_button_checks_the_fields_content_and_ignores_an_empty_field():
    controls, below = ask(4)
    before = below.value
    controls["Check"].click()
    assert below.value == before and "<summary>" in before, "the answer can be opened from the start"
    controls["number"].value = "4"
    below.value = ""
    controls["Check"].click()
    assert "Right" in below.value


def test_a_choice_is_checked_when_it_is_pressed():
    controls, below = ask("the mask", ["x", "the mask"])
    controls["x"].click()
    assert "Not x." in below.value and "<summary>" in below.value
    controls["the mask"].click()
    assert "Right: the mask." in below.value


def test_the_explanation_is_shown_only_after_the_right_answer():
    panel = predict("Which?", lambda: "b", ["a", "b"]).widget()
    wrong, right = panel.children[1].children
    assert "remat-asks" in panel._dom_classes
    wrong.click()
    assert "remat-answered" not in panel._dom_classes
    right.click()
    wrong.click()
    assert "remat-answered" in panel._dom_classes, "once shown, it stays"


def test_without_a_kernel_the_answer_is_folded():
    twin = predict("How many `residuals`?", lambda: 4711)._repr_mimebundle_()
    before, _, opened = twin["text/html"].partition("<details ")
    assert "<code>residuals</code>" in before and "4711" not in twin["text/html"], "nor is it read in the source"
    assert "4711" in html.unescape(opened)
    assert "4711" not in twin["text/plain"] and "How many residuals?" in twin["text/plain"]


def test_a_question_whose_answer_is_none_of_its_choices_fails_when_it_is_shown():
    with pytest.raises(ValueError, match="not one of the choices: a, b"):
        predict("Which?", lambda: "c", ["a", "b"]).html()


def test_the_style_that_hides_outputs_selects_classes_of_the_question():
    question = predict("Which?", lambda: "b", ["a", "b"])
    panel = question.widget()
    panel.children[1].children[1].click()
    style, _, shown = question.html().partition("</style>")
    given = {*re.findall(r"remat-[a-z]+", shown), *panel._dom_classes}
    script = Path(__file__).parents[3] / "book" / "static" / "book.js"
    selected = re.findall(r"\.(remat-[a-z]+)", style + script.read_text(encoding="utf-8"))
    assert selected and set(selected) <= given

"""Mutate evidence and judge it. A number determines the mutation."""

import functools
import json
import random
import re

import numpy as np
import sample_answers

from grader.exercises import registry
from grader.judging import judge
from grader.stablehlo.execution import Execution
from grader.stablehlo.numpy_operations import Uninterpreted
from grader.stablehlo.types import SUPPORTED_OPERATIONS
from grader.tracing.capture import capture
from grader.tracing.evidence import EvidenceError

# Wrong answers that no small change makes right, so that their mutated evidence must never pass; and right answers.
BASES = [
    ("checkpoint_dot_policy", "wrong", "no_checkpoint"),
    ("checkpoint_dot_policy", "wrong", "no_policy"),
    ("scan_layers", "wrong", "no_checkpoint"),
    ("predict_residuals", "wrong", None),
    ("checkpoint_dot_policy", "right", None),
    ("scan_layers", "right", None),
    ("predict_residuals", "right", None),
]
OUTCOMES = ("refused", "could not be judged", "not passed", "not attempted", "passed")
FALSE_PASS = "passed, and should not have"
_JUNK = [None, True, -1, 0, 10**30, 1.5, float("nan"), "", "x" * 5000, "\ud800", [], {}, [[[[]]]], {"a": 1}]


class Compiled(Execution):
    """Run all programs with XLA, even if NumPy can interpret them."""

    def interpreted(self, *_):
        raise Uninterpreted


@functools.cache
def _shipped_evidence(place: int):
    slug, kind, name = BASES[place]
    shipped = getattr(sample_answers, kind)(slug)
    answer = shipped[name or next(iter(shipped))].answer
    cases = registry.task(slug).cases(np.random.default_rng(place))
    return capture(answer, slug, cases).to_json(), cases


def attempt(number: int) -> str:
    """Judge evidence with a mutation determined by the number.

    Returns:
      One of OUTCOMES, or FALSE_PASS. Any other exception of the judge is a defect.
    """
    rng = random.Random(number)
    place = rng.randrange(len(BASES))
    slug, kind, _ = BASES[place]
    base, cases = _shipped_evidence(place)
    text = mutated(base, rng)
    try:
        outcome = judge.judge_text(text, cases, slug, number).outcome
    except EvidenceError:
        return "refused"
    if outcome == "passed" and kind == "wrong":
        return FALSE_PASS
    if outcome == "passed" and _programs_in(text) != _programs_in(base):
        # The mutated programs may still do what is asked, or may have passed by chance. Judge them on other inputs and
        # with XLA.
        again = judge.judge_text(text, cases, slug, number + 1, Compiled).outcome
        return outcome if again == outcome else FALSE_PASS
    return outcome


def _programs_in(text: str) -> list[str]:
    fields = json.loads(text)
    return [fields["forward"], fields["backward"]]


def mutated(text: str, rng: random.Random) -> str:
    """Return the evidence with one to four changes: to its characters, its fields, or its programs' lines and words."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        change = rng.choice([_change_characters, _change_field, _change_line, _change_word, _change_word, _change_word])
        try:
            text = change(text, rng)
        except (ValueError, TypeError, LookupError, AttributeError):  # an earlier change made the text invalid
            text = _change_characters(text, rng)
    return text


def _change_characters(text: str, rng: random.Random) -> str:
    start = rng.randrange(len(text) + 1)
    end = start + rng.choice([0, 1, 1, 10, 1000])
    return text[:start] + rng.choice(["", text[start:end] * 2, *'0123456789x%#@<>{}()[]",\\ \n']) + text[end:]


def _change_field(text: str, rng: random.Random) -> str:
    fields = json.loads(text)
    holder = rng.choice([fields, fields, fields["cases"], *fields["cases"]])
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    others = [*_JUNK, *(fields.values()), *(fields["cases"])]
    what = rng.randrange(4)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, list):
        holder.insert(key, rng.choice(holder))
    else:
        holder[key] = rng.choice(others)
    return json.dumps(fields)


def _of_a_program(change):
    def changed(text: str, rng: random.Random) -> str:
        fields = json.loads(text)
        which = rng.choice(["forward", "backward"])
        fields[which] = change(fields[which], rng)
        return json.dumps(fields)

    return changed


@_of_a_program
def _change_line(program: str, rng: random.Random) -> str:
    lines = program.split("\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            del lines[one]
        case 1:
            lines[one], lines[other] = lines[other], lines[one]
        case 2:
            lines.insert(one, lines[other])
    return "\n".join(lines)


_KINDS = [r"%[\w#:]+", r"\bstablehlo\.\w+", r"tensor<[^>]*>", r"(?<![\w%])-?\d+(?:\.\d+E?[+-]?\d*)?", r"@\w+"]


@_of_a_program
def _change_word(program: str, rng: random.Random) -> str:
    """Replace one word, such as a value's name, a type or a number, by another word of the same kind."""
    kind = rng.choice(_KINDS)
    found = list(re.finditer(kind, program))
    word = rng.choice(found)
    words = [other[0] for other in found]
    if "stablehlo" in kind:
        words += sorted(name for name in SUPPORTED_OPERATIONS if name.startswith("stablehlo."))
    words += ["0", "-1", "255", "9223372036854775807", "1.0e38"] if r"\d+(" in kind else []
    return program[: word.start()] + rng.choice(words) + program[word.end() :]

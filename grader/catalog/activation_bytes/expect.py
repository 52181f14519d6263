"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake

# A layer's values as (elements in units of s b h, or of a s s b; bytes of an element). Inside is what has heads or the
# MLP's columns, outside what every device has as a whole, x first.
_INSIDE = ((1, 2), (1, 2), (1, 2), (1, 2), (4, 2), (4, 2))
_OUTSIDE = ((1, 2), (1, 2), (1, 1), (1, 2), (1, 2), (1, 1))
_MATRIX = ((1, 2), (1, 1), (1, 2))


def reference(s, b, h, a, t, mode):
    return _kept(s, b, h, a, t, mode)


def _kept(s, b, h, a, t, mode, size=lambda nbytes: nbytes, inside=_INSIDE, outside=_OUTSIDE, matrix=_MATRIX):
    """Bytes on each device; with other values in place of the right ones, or elements of other sizes."""

    def total(values):
        return sum(elements * size(nbytes) for elements, nbytes in values)

    if mode == "full":
        return total(outside[:1]) * s * b * h
    whole, split = total(outside) * s * b * h, total(inside) * s * b * h
    if "selective" not in mode:
        split += total(matrix) * a * s * s * b
    return (whole // t if "sequence" in mode else whole) + split // t


def _of(**other):
    return lambda *arguments: _kept(*arguments, **other)


def _in_mode(change):
    """What is right in another mode, for all but full."""
    return lambda s, b, h, a, t, mode: _kept(s, b, h, a, t, mode if mode == "full" else change(mode))


def _matrix_left(*values):
    """Selective recomputation that keeps some of the attention matrix's three."""

    def kept(s, b, h, a, t, mode):
        left = sum(nbytes for _, nbytes in values) * a * s * s * b // t if "selective" in mode else 0
        return reference(s, b, h, a, t, mode) + left

    return kept


def _matrix_whole(s, b, h, a, t, mode):
    right, of_matrix = reference(s, b, h, a, t, mode), 5 * a * s * s * b
    return right if "selective" in mode or mode == "full" else right - of_matrix // t + of_matrix


def _tokens_once(s, b, h, a, t, mode):
    right = reference(s, b, h, a, t, mode)
    return right if "selective" in mode or mode == "full" else right - 5 * a * s * (s - 1) * b // t


def _full(divided):
    return lambda s, b, h, a, t, mode: divided(2 * s * b * h, t) if mode == "full" else reference(s, b, h, a, t, mode)


_SHAPES = (
    "What are the shapes of those values on one device, and which of them have an axis of heads or of hidden columns?"
)

mistakes = (
    Mistake(
        "it counts elements, not bytes",
        _of(size=lambda _: 1),
        "How many bytes does a bfloat16 take, and how many a bool?",
    ),
    Mistake(
        "it takes a mask's elements for 2 bytes each",
        _of(size=lambda _: 2),
        "What is the dtype of a mask, and how many bytes is that?",
    ),
    Mistake(
        "it takes every element for 4 bytes",
        _of(size=lambda _: 4),
        "How many bytes does a bfloat16 take, and how many a bool?",
    ),
    Mistake(
        "it is what one device keeps that has the layer for itself",
        lambda s, b, h, a, t, mode: _kept(s, b, h, a, 1, mode),
        "What does the t-th part of the heads make smaller, and where does t come in?",
    ),
    Mistake(
        "it is what all devices keep together",
        lambda s, b, h, a, t, mode: t * _kept(s, b, h, a, t, mode),
        "Of how many devices does the page ask what they keep?",
    ),
    Mistake(
        "with sequence parallelism everything in it has the t-th part of the tokens",
        lambda s, b, h, a, t, mode: _kept(s // t if "sequence" in mode else s, b, h, a, t, mode),
        "Which values have only a part of the tokens on each device, and which have all tokens of a part of the heads?",
    ),
    Mistake(
        "its attention matrix has the layer's width where the number of heads belongs",
        lambda s, b, h, a, t, mode: _kept(s, b, h, a, t, mode) + _kept(s, b, 0, h - a, t, mode),
        "Which of the page's shapes end in two axes of tokens, and what are their other two?",
    ),
    Mistake(
        "it divides by t what every device has as a whole",
        _in_mode(lambda mode: mode + "+sequence"),
        _SHAPES,
    ),
    Mistake(
        "sequence parallelism changes nothing in it",
        _in_mode(lambda mode: mode.replace("+sequence", "")),
        "Of which values has a device only its share of the tokens, and had all of them before?",
    ),
    Mistake(
        "selective recomputation changes nothing in it",
        _in_mode(lambda mode: mode.replace("+selective", "")),
        "Which three of the page's values have an element for every two tokens in every head?",
    ),
    *(
        Mistake(
            "selective recomputation forgets only a part of the attention matrix in it",
            _matrix_left(*left),
            "Which three of the page's values have an element for every two tokens in every head?",
        )
        for left in (_MATRIX[:1], _MATRIX[1:2], _MATRIX[:2], _MATRIX[::2])
    ),
    Mistake(
        "every device has the attention matrix of all heads in it",
        _matrix_whole,
        "How many heads has a device, and how many attention matrices is that?",
    ),
    Mistake(
        "it has one attention matrix, not one for each head",
        lambda s, b, h, a, t, mode: _kept(s, b, h, 1, t, mode),
        "For which pairs is there a score, and is there one for all heads together?",
    ),
    Mistake(
        "the MLP's hidden values are as wide as the layer in it",
        _of(inside=((1, 2),) * 6),
        "What is the shape of mlpwi, beside that of x?",
    ),
    Mistake(
        "the layer's input is missing in it, or another value of its shape",
        _of(outside=_OUTSIDE[1:]),
        "Is x among the values that you add up, and does the first norm need it? How many others have its shape?",
    ),
    Mistake(
        "there is one mask outside of attention and MLP in it, not two",
        _of(outside=_OUTSIDE[:5]),
        "Where do dropouts stand in a layer, and is each of their masks on the page's list?",
    ),
    Mistake(
        "what comes out of the GELU is missing in it, or what goes in",
        _of(inside=_INSIDE[:5]),
        "mlpwi goes into the GELU: what comes out, and who needs which of the two?",
    ),
    Mistake(
        "the attention matrix is missing in it",
        _of(matrix=()),
        "Which three of the page's values have an element for every two tokens in every head?",
    ),
    Mistake(
        "it has the attention matrix with the number of tokens once, not twice",
        _tokens_once,
        "For which two tokens is there a score, and how many such pairs has a sequence?",
    ),
    Mistake(
        "it is for a batch of one",
        lambda s, b, h, a, t, mode: _kept(s, 1, h, a, t, mode),
        "Are those the values of one sequence alone, and how many sequences has a batch?",
    ),
    Mistake(
        "the layer's input is divided by t in it",
        _full(lambda nbytes, t: nbytes // t),
        "With full recomputation, how much of x does each device keep?",
    ),
    Mistake(
        "nothing is kept in it with full recomputation",
        _full(lambda nbytes, t: 0),
        "What does a layer need to be computed again?",
    ),
)

compared_with = "what each device keeps"
otherwise = "Which of the page's values do you add up in this mode, and by what do you divide each of them?"

error_questions = (
    (r"returns None", "Is there a return for this mode too?"),
    (r"^UnboundLocalError|^KeyError", "For which modes does that line run, and what is the fifth?"),
    (r"^ValueError|^AttributeError", "Which five strings may mode be, and what does that line make of each?"),
)

hints = (
    Hint(
        "Which of the values in the page's table have an axis that is split between devices? Add up the bytes of "
        "those, and apart from them the bytes of the others: what do you get, in units of `s * b * h`?"
    ),
    Hint(
        "Is it one integer? In Python `/` gives a float, even where it comes out even.",
        after=("wrong type",),
    ),
    *(
        Hint(
            "On one device, `t = 1`, chapter 9 has `s * b * h * 34 + 5 * a * s * s * b`. Does your answer give that, "
            'for `"tensor"`?',
            after=("wrong value",),
            says=says,
        )
        for says in ("elements, not bytes", "mask's elements", "every element for 4")
    ),
    Hint(
        "`x` is the same on every device. So is what a norm makes of it, and the mask of a dropout outside of "
        "attention and MLP. How many bytes are these together?",
        after=("wrong value",),
        says="as a whole",
    ),
    Hint(
        "Which of the table's shapes end in `s, s`? What is `a` there on one device, and in which modes are they kept?",
        after=("wrong value",),
        says="attention matrix",
    ),
    *(
        Hint(
            "A device that has nothing but the weights and `x` can compute its part of the layer again. Which part of "
            "`x` does it need for that, if nobody is to send it anything?",
            after=("wrong value",),
            says=says,
        )
        for says in ("input is divided", "nothing is kept")
    ),
    Hint(
        "Write two lines, one for what has heads or hidden columns, one for the rest. In which modes is the second "
        "divided by `t`? In which does the attention matrix belong to the first?",
        after=("wrong value",),
    ),
    Hint(
        "Nearly the answer: `24 * s * b * h` bytes are split, `10 * s * b * h` are not, and `5 * a * s * s * b` are "
        'those of the attention matrix. `"full"` keeps 2 bytes of the 10. What becomes of the three numbers where '
        '`"sequence" in mode`, and where `"selective" in mode`?'
    ),
    *(
        Hint(
            "Call your answer once for each of the five modes, with the same numbers. For which of them does it not "
            'come to its `return`? What would `"sequence" in mode` say there?',
            after=(kind,),
            says=says,
        )
        for kind, says in (("wrong type", "returns None"), ("raises", "mode"))
    ),
    Hint(
        "How many values of the page's table have the shape `(b, s, h)`? How many of these take 2 bytes an element, "
        "and how many 1? What do you get for each, in units of `s * b * h`?",
        after=("wrong value",),
        says="or another value of its shape",
    ),
    Hint(
        "How many masks are there in the page's table? What is the shape of each?",
        after=("wrong value",),
        says="there is one mask",
    ),
    *(
        Hint(
            "Which values of the page's table have `4 * h` columns? How many bytes are these, in units of `s * b * h`?",
            after=("wrong value",),
            says=says,
        )
        for says in ("hidden values are as wide", "GELU")
    ),
    Hint(
        "Every shape in the page's table begins with the same letter. Where is that in your answer?",
        after=("wrong value",),
        says="batch of one",
    ),
    Hint(
        "Which of the table's shapes end in `s, s`? Which modes have the word `selective` in them, and does your "
        "answer treat all of these alike?",
        after=("wrong value",),
        says="selective recomputation changes nothing",
    ),
    *(
        Hint(
            "Take `t = 2`. Which half of the layer's values does each of two devices have: which of the table's shapes "
            "become smaller in the mode that the finding names, and which not?",
            after=("wrong value",),
            says=says,
        )
        for says in (
            "has the layer for itself",
            "keep together",
            "part of the tokens",
            "sequence parallelism changes nothing",
        )
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data

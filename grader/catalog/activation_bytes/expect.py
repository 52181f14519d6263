"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake

# A layer's values as (elements in units of s b h, or of a s s b; bytes per element). Inside are the values with an axis
# of heads or hidden columns; outside are those that every device holds whole, x first.
_INSIDE = ((1, 2), (1, 2), (1, 2), (1, 2), (4, 2), (4, 2))
_OUTSIDE = ((1, 2), (1, 2), (1, 1), (1, 2), (1, 2), (1, 1))
_MATRIX = ((1, 2), (1, 1), (1, 2))


def reference(s, b, h, a, t, mode):
    return _kept(s, b, h, a, t, mode)


def _kept(s, b, h, a, t, mode, size=lambda nbytes: nbytes, inside=_INSIDE, outside=_OUTSIDE, matrix=_MATRIX):
    """Return the bytes saved per device; optionally with other values or element sizes, to model mistakes."""

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
    """Return an answer that computes the bytes of another mode, except for `full`."""
    return lambda s, b, h, a, t, mode: _kept(s, b, h, a, t, mode if mode == "full" else change(mode))


def _matrix_left(*values):
    """Return an answer whose selective recomputation still saves some of the attention matrix's three values."""

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


_SHAPES = "Which values have an axis of heads or of hidden columns? Only these are split in this mode."
_PAIRS = "Which three of the page's values have one element for every pair of tokens in every head?"

mistakes = (
    KnownMistake(
        "it counts elements, not bytes",
        _of(size=lambda _: 1),
        "How many bytes does a bfloat16 element take, and how many does a bool element take?",
    ),
    KnownMistake(
        "it counts 2 bytes for each element of a mask",
        _of(size=lambda _: 2),
        "What is the dtype of a mask, and how many bytes does one element take?",
    ),
    KnownMistake(
        "it counts 4 bytes for every element",
        _of(size=lambda _: 4),
        "How many bytes does a bfloat16 element take, and how many does a bool element take?",
    ),
    KnownMistake(
        "it is what one device saves if the layer is not split",
        lambda s, b, h, a, t, mode: _kept(s, b, h, a, 1, mode),
        "Which values are smaller when a device has only a t-th of the heads? Where do you divide by t?",
    ),
    KnownMistake(
        "it is what all devices save together",
        lambda s, b, h, a, t, mode: t * _kept(s, b, h, a, t, mode),
        "Does the page ask for the bytes on one device or on all of them?",
    ),
    KnownMistake(
        "it gives every value a t-th of the tokens under sequence parallelism",
        lambda s, b, h, a, t, mode: _kept(s // t if "sequence" in mode else s, b, h, a, t, mode),
        "Which values have a part of the tokens on each device, and which have all tokens but a part of the heads?",
    ),
    KnownMistake(
        "its attention matrix uses the width of the layer in place of the number of heads",
        lambda s, b, h, a, t, mode: _kept(s, b, h, a, t, mode) + _kept(s, b, 0, h - a, t, mode),
        "Which of the page's shapes end in two axes of tokens, and what are their other two axes?",
    ),
    KnownMistake(
        "it also divides by t the values that every device holds whole",
        _in_mode(lambda mode: mode + "+sequence"),
        _SHAPES,
    ),
    KnownMistake(
        "it ignores sequence parallelism",
        _in_mode(lambda mode: mode.replace("+sequence", "")),
        "Which values does every device hold whole in `tensor` mode? Sequence parallelism splits their tokens.",
    ),
    KnownMistake(
        "it ignores selective recomputation",
        _in_mode(lambda mode: mode.replace("+selective", "")),
        _PAIRS,
    ),
    *(
        KnownMistake(
            "with selective recomputation it still counts a part of the attention matrix", _matrix_left(*left), _PAIRS
        )
        for left in (_MATRIX[:1], _MATRIX[1:2], _MATRIX[:2], _MATRIX[::2])
    ),
    KnownMistake(
        "it counts the attention matrix of all heads on every device",
        _matrix_whole,
        "How many heads does one device have, and how many attention matrices are those?",
    ),
    KnownMistake(
        "it counts one attention matrix, not one per head",
        lambda s, b, h, a, t, mode: _kept(s, b, h, 1, t, mode),
        "Does the attention matrix have an axis of heads? Look at its shape on the page.",
    ),
    KnownMistake(
        "it counts the MLP's hidden values as wide as the layer",
        _of(inside=((1, 2),) * 6),
        "What is the shape of `mlpwi`, compared with that of `x`?",
    ),
    KnownMistake(
        "it leaves out the layer's input or another value of that shape",
        _of(outside=_OUTSIDE[1:]),
        "Do you count `x`, which the first norm needs? Which other values have its shape?",
    ),
    KnownMistake(
        "it counts one mask outside attention, not two",
        _of(outside=_OUTSIDE[:5]),
        "Which dropout masks does the page's table list, and do you count each of them?",
    ),
    KnownMistake(
        "it leaves out the input or the output of the GELU",
        _of(inside=_INSIDE[:5]),
        "Does the table list both the input of the GELU, `mlpwi`, and its output?",
    ),
    KnownMistake("it leaves out the attention matrix", _of(matrix=()), _PAIRS),
    KnownMistake(
        "it has the number of tokens once, not squared, in the attention matrix",
        _tokens_once,
        "An attention matrix has a score for each pair of tokens. How many pairs does a sequence of s tokens have?",
    ),
    KnownMistake(
        "it is for a batch of one sequence",
        lambda s, b, h, a, t, mode: _kept(s, 1, h, a, t, mode),
        "Does the number of sequences, b, appear in each term of your sum?",
    ),
    KnownMistake(
        "it divides the layer's input by t under full recomputation",
        _full(lambda nbytes, t: nbytes // t),
        "With full recomputation, how much of `x` does each device save?",
    ),
    KnownMistake(
        "it saves nothing under full recomputation",
        _full(lambda nbytes, t: 0),
        "What does a device need in order to recompute the layer?",
    ),
)

compared_with = "the number of bytes that each device saves"
otherwise = "Which of the page's values do you add up in this mode, and what do you divide each of them by?"

error_questions = (
    (r"returns None", "Does your function reach a `return` for this mode?"),
    (r"^UnboundLocalError|^KeyError", "For which of the five modes does that line fail?"),
    (r"^ValueError|^AttributeError", "Which five strings can `mode` be, and what does that line do with each?"),
)

hints = (
    Hint(
        "Which values in the page's table have an axis of heads or of hidden columns, which the devices split? Add up "
        "the bytes of those, and separately the bytes of the other values, in units of `s * b * h`."
    ),
    Hint(
        "Is your result one integer? In Python `/` returns a float even if the division is exact; use `//`.",
        on_kinds=("wrong type",),
    ),
    *(
        Hint(
            "On one device, `t = 1`, chapter 10's formula is `s * b * h * 34 + 5 * a * s * s * b`. Does your answer "
            'return that for `"tensor"`?',
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("elements, not bytes", "element of a mask", "4 bytes for every element")
    ),
    Hint(
        "Every device holds all of `x`, of the norms' results and of the dropout masks outside attention and the MLP, "
        "unless the mode has `sequence` in it. How many bytes are these together?",
        on_kinds=("wrong value",),
        on_text="every device holds whole",
    ),
    Hint(
        "Which of the table's shapes end in `s, s`? How many of their `a` heads does one device have, and in which "
        "modes are these values saved?",
        on_kinds=("wrong value",),
        on_text="attention matrix",
    ),
    *(
        Hint(
            "With full recomputation, each device recomputes its part of the layer from the weights and `x`. How much "
            "of `x` must it save to do so without communication?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("divides the layer's input", "saves nothing")
    ),
    Hint(
        "Write two sums: the values with an axis of heads or hidden columns, and all others. In which modes do you "
        "divide the second sum by `t`? In which modes does the attention matrix belong to the first?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "Nearly the answer: `24 * s * b * h` bytes are always split, `10 * s * b * h` are split only under "
        "`sequence`, and the attention matrix, `5 * a * s * s * b`, is split but not saved under `selective`. "
        '`"full"` saves 2 of the 10: `x`, unsplit.'
    ),
    *(
        Hint(
            "Call your answer once for each of the five modes, with the same numbers. For which mode does it fail? "
            'A test such as `"sequence" in mode` works for all five.',
            on_kinds=(kind,),
            on_text=says,
        )
        for kind, says in (("wrong type", "returns None"), ("raises", "mode"))
    ),
    Hint(
        "How many values in the page's table have the shape `(b, s, h)`? Of these, which take 2 bytes per element and "
        "which take 1? Add them up in units of `s * b * h`.",
        on_kinds=("wrong value",),
        on_text="another value of that shape",
    ),
    Hint(
        "How many masks are in the page's table? What is the shape of each?",
        on_kinds=("wrong value",),
        on_text="one mask outside attention",
    ),
    *(
        Hint(
            "Which values of the page's table have `4 * h` columns? How many bytes are they together, in units of "
            "`s * b * h`?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("hidden values as wide", "GELU")
    ),
    Hint(
        "Every shape in the page's table starts with `b`. Is it a factor of every term in your answer?",
        on_kinds=("wrong value",),
        on_text="batch of one",
    ),
    Hint(
        "Which of the table's shapes end in `s, s`? Which two modes contain the word `selective`, and does your answer "
        "leave these values out in both?",
        on_kinds=("wrong value",),
        on_text="it ignores selective recomputation",
    ),
    *(
        Hint(
            "Take `t = 2`, and write down the table for one of the two devices in the mode that the check names. Which "
            "shapes become smaller, and on which axis?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in (
            "if the layer is not split",
            "save together",
            "a t-th of the tokens",
            "it ignores sequence parallelism",
        )
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data

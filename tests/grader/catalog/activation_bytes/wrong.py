"""Wrong answers to activation_bytes, each with the finding that must name its mistake."""

from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
TENSOR, SEQUENCE, SELECTIVE, BOTH, FULL = ALL = (
    "tensor",
    "tensor+sequence",
    "tensor+selective",
    "tensor+sequence+selective",
    "full",
)


def layer(s, b, h, a, t, mode, whole=10, split=24, matrix=5, full=2):
    """Bytes, with numbers in place of the right ones."""
    if mode == FULL:
        return full * s * b * h
    of_matrix = 0 if "selective" in mode else matrix * a * s * s * b
    return whole * s * b * h // (t if "sequence" in mode else 1) + (split * s * b * h + of_matrix) // t


@fails_with("wrong value", "elements, not bytes", "How many bytes does a bfloat16 take", cases=ALL)
def elements(*arguments):
    return layer(*arguments, whole=6, split=12, matrix=3, full=1)


@fails_with("wrong value", "mask's elements for 2 bytes", "dtype of a mask", cases=ALL[:4])
def masks_like_the_rest(*arguments):
    return layer(*arguments, whole=12, split=24, matrix=6)


@fails_with("wrong value", "4 bytes", cases=ALL)
def float32(*arguments):
    return layer(*arguments, whole=24, split=48, matrix=12, full=4)


@fails_with("wrong value", "has the layer for itself", "where does t come in", cases=ALL[:4])
def t_forgotten(s, b, h, a, t, mode):
    return layer(s, b, h, a, 1, mode)


@fails_with("wrong value", "divides by t what every device has as a whole", cases=(TENSOR, SELECTIVE))
def all_divided_by_t(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, FULL) if mode == FULL else layer(s, b, h, a, 1, mode) // t


@fails_with("wrong value", "divides by t what every device has as a whole", "What are the shapes", cases=(TENSOR,))
def all_divided_by_t_but_for_selective(s, b, h, a, t, mode):
    return layer(s, b, h, a, 1, mode) // t if mode == TENSOR else layer(s, b, h, a, t, mode)


@fails_with("wrong value", "sequence parallelism changes nothing", "its share of the tokens", cases=(SEQUENCE, BOTH))
def sequence_ignored(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode.replace("+sequence", ""))


@fails_with("wrong value", "sequence parallelism changes nothing", cases=(SEQUENCE,))
def sequence_only_with_selective(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, TENSOR if mode == SEQUENCE else mode)


@fails_with("wrong value", "selective recomputation changes nothing", cases=(BOTH,))
def only_one_of_both(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, SEQUENCE if mode == BOTH else mode)


@fails_with("wrong value", "only a part of the attention matrix", "for every two tokens", cases=(SELECTIVE,))
def mask_still_kept(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) + (a * s * s * b // t if mode == SELECTIVE else 0)


@fails_with("wrong value", "only a part of the attention matrix", cases=(SELECTIVE, BOTH))
def only_the_scores_forgotten(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) + (3 * a * s * s * b // t if "selective" in mode else 0)


@fails_with("wrong value", "the attention matrix of all heads", "How many heads has a device", cases=(TENSOR, SEQUENCE))
def matrix_not_divided(s, b, h, a, t, mode):
    right = layer(s, b, h, a, t, mode, matrix=0)
    return right + 5 * a * s * s * b if mode in (TENSOR, SEQUENCE) else right


@fails_with("wrong value", "one attention matrix", cases=(TENSOR, SEQUENCE))
def one_head(s, b, h, a, t, mode):
    return layer(s, b, h, 1, t, mode)


@fails_with("wrong value", "as wide as the layer", "shape of mlpwi", cases=ALL[:4])
def narrow_mlp(*arguments):
    return layer(*arguments, split=12)


@fails_with("wrong value", "input is missing", "does the first norm need it", cases=ALL[:4])
def without_x(*arguments):
    return layer(*arguments, whole=8, full=0)


@fails_with("wrong value", "input is divided by t", "how much of x", cases=(FULL,))
def a_share_of_x(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) // (t if mode == FULL else 1)


@fails_with("wrong value", "nothing is kept", "to be computed again", cases=(FULL,))
def nothing_for_full(*arguments):
    return layer(*arguments, full=0)


@fails_with("wrong value", "Your answer is not what each device keeps.", "by what do you divide", cases=ALL[:4])
def without_masks_and_norms(*arguments):
    return layer(*arguments, whole=4)


@fails_with("wrong type", ".0 where an integer is asked for", "What should activation_bytes", cases=ALL)
def as_floats(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) / 1


@fails_with("wrong type", "None", "a return for this mode too", cases=(BOTH,))
def a_mode_forgotten(s, b, h, a, t, mode):
    if mode != BOTH:
        return layer(s, b, h, a, t, mode)


@fails_with("raises", "KeyError", "what is the fifth", cases=(FULL,))
def four_modes(s, b, h, a, t, mode):
    return {name: layer(s, b, h, a, t, name) for name in ALL[:4]}[mode]


@fails_with("raises", "ValueError: not enough values to unpack", "Which five strings", cases=(TENSOR, FULL))
def split_at_the_plus(s, b, h, a, t, mode):
    _, second, *_ = mode.split("+")
    return layer(s, b, h, a, t, mode) if second else 0

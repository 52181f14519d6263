"""Wrong answers to activation_bytes, each with the finding that must name its mistake."""

import numpy as np
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


def always(**_):
    return True


def sharded(mode, t, **_):
    return mode != FULL and t > 1


def unless_full(mode, **_):
    return mode != FULL


def wrong(name, *words, hint, where, **numbers):
    """Note the answer with these numbers in place of the right ones."""
    fails_with("wrong value", *words, hint=hint, where=where, name=name)(
        lambda *arguments: layer(*arguments, **numbers)
    )


wrong(
    "elements",
    "elements, not bytes",
    "How many bytes does a bfloat16 element take",
    hint="one_device_1_chapter_10",
    where=always,
    whole=6,
    split=12,
    matrix=3,
    full=1,
)
wrong(
    "masks_like_the_rest",
    "2 bytes for each element of a mask",
    "dtype of a mask",
    hint="one_device_1_chapter_10",
    where=unless_full,
    whole=12,
    matrix=6,
)
wrong("float32", "4 bytes", hint="one_device_1_chapter_10", where=always, whole=24, split=48, matrix=12, full=4)
wrong(
    "narrow_mlp",
    "the width of the layer",
    "shape of `mlpwi`",
    hint="values_table_4_columns_many",
    where=unless_full,
    split=12,
)
wrong(
    "nothing_for_full",
    "it saves nothing",
    "to recompute the layer",
    hint="full_recomputation_device_recomputes_part",
    where=lambda mode, **_: mode == FULL,
    full=0,
)
wrong(
    "without_masks_and_norms",
    "it is right only for mode = 'full'",
    "what do you divide",
    hint="write_two_sums_values_axis",
    where=unless_full,
    whole=4,
)
wrong(
    "no_matrix",
    "leaves out the attention matrix",
    "Which three",
    hint="table_shapes_end_many_heads",
    where=lambda mode, **_: mode in ALL[:2],
    matrix=0,
)
wrong(
    "one_norm",
    "another value of that shape",
    "have the same shape as `x`",
    hint="many_values_table_shape_take",
    where=unless_full,
    whole=8,
)
wrong(
    "one_mask",
    "counts only one mask outside attention",
    "Which dropout masks",
    hint="many_masks_table_shape",
    where=unless_full,
    whole=9,
)
wrong(
    "no_gelu",
    "leaves out the input or the output of the GELU",
    "mlpwi",
    hint="values_table_4_columns_many",
    where=unless_full,
    split=16,
)


@fails_with("wrong value", "for an unsharded layer", "divide by `t`", hint="take_2_write_down_table", where=sharded)
def t_forgotten(s, b, h, a, t, mode):
    return layer(s, b, h, a, 1, mode)


@fails_with(
    "wrong value",
    "also divides the replicated values by `t`",
    "Which values have a head axis",
    hint="every_device_holds_all_x",
    where=lambda mode, t, **_: mode == TENSOR and t > 1,
)
def all_divided_by_t_but_for_selective(s, b, h, a, t, mode):
    return layer(s, b, h, a, 1, mode) // t if mode == TENSOR else layer(s, b, h, a, t, mode)


@fails_with(
    "wrong value",
    "it ignores sequence parallelism",
    hint="take_2_write_down_table",
    where=lambda mode, t, **_: mode == SEQUENCE and t > 1,
)
def sequence_only_with_selective(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, TENSOR if mode == SEQUENCE else mode)


@fails_with(
    "wrong value",
    "it ignores selective recomputation",
    hint="table_shapes_end_two_modes",
    where=lambda mode, **_: mode == BOTH,
)
def only_one_of_both(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, SEQUENCE if mode == BOTH else mode)


@fails_with(
    "wrong value",
    "still counts part of the attention matrix",
    "for every pair of tokens",
    hint="table_shapes_end_many_heads",
    where=lambda mode, **_: mode == SELECTIVE,
)
def mask_still_kept(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) + (a * s * s * b // t if mode == SELECTIVE else 0)


@fails_with(
    "wrong value",
    "the attention matrix of all heads",
    "How many heads does one device have",
    hint="table_shapes_end_many_heads",
    where=lambda mode, t, **_: mode in (TENSOR, SEQUENCE) and t > 1,
)
def matrix_not_divided(s, b, h, a, t, mode):
    right = layer(s, b, h, a, t, mode, matrix=0)
    return right + 5 * a * s * s * b if mode in (TENSOR, SEQUENCE) else right


@fails_with(
    "wrong value",
    "one attention matrix",
    hint="table_shapes_end_many_heads",
    where=lambda mode, a, **_: mode in (TENSOR, SEQUENCE) and a > 1,
)
def one_head(s, b, h, a, t, mode):
    return layer(s, b, h, 1, t, mode)


@fails_with(
    "wrong value",
    "divides the layer's input by `t`",
    "how much of `x`",
    hint="full_recomputation_device_recomputes_part",
    where=lambda mode, t, **_: mode == FULL and t > 1,
)
def a_share_of_x(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) // (t if mode == FULL else 1)


@fails_with(
    "wrong type",
    ".0 instead of an integer",
    "What should activation_bytes",
    hint="result_one_integer_python_returns",
    where=always,
)
def as_floats(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) / 1


@fails_with(
    "wrong type",
    "None",
    "reach a `return` statement for this mode",
    hint="call_once_five_modes_same",
    where=lambda mode, **_: mode == BOTH,
)
def a_mode_forgotten(s, b, h, a, t, mode):
    if mode != BOTH:
        return layer(s, b, h, a, t, mode)


@fails_with(
    "raises",
    "KeyError",
    "of the five modes",
    hint="call_once_five_modes_same_numbers",
    where=lambda mode, **_: mode == FULL,
)
def four_modes(s, b, h, a, t, mode):
    return {name: layer(s, b, h, a, t, name) for name in ALL[:4]}[mode]


@fails_with(
    "raises",
    "ValueError: not enough values to unpack",
    "Which five values",
    hint="call_once_five_modes_same_numbers",
    where=lambda mode, **_: mode in (TENSOR, FULL),
)
def split_at_the_plus(s, b, h, a, t, mode):
    _, second, *_ = mode.split("+")
    return layer(s, b, h, a, t, mode) if second else 0


@fails_with(
    "wrong value",
    "for a batch of one",
    "the batch size",
    hint="every_shape_table_starts_factor",
    where=lambda b, **_: b > 1,
)
def batch_forgotten(s, b, h, a, t, mode):
    return layer(s, 1, h, a, t, mode)


@fails_with(
    "wrong value",
    "the sequence length only once",
    "each pair of tokens",
    hint="table_shapes_end_many_heads",
    where=lambda mode, s, **_: mode in ALL[:2] and s > 1,
)
def tokens_not_squared(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) - (0 if mode not in ALL[:2] else 5 * a * s * b * (s - 1) // t)


@fails_with("wrong value", "it is wrong only for b = 1", hint="write_two_sums_values_axis", where=lambda b, **_: b == 1)
def one_sequence_counts_less(s, b, h, a, t, mode):
    return layer(s, b, h, a, t, mode) - (b == 1)


@fails_with(
    "wrong value",
    "the number of bytes that each device saves",
    hint="write_two_sums_values_axis",
    where=lambda b, **_: b not in (1, 8),
)
def a_few_sequences_count_as_eight(s, b, h, a, t, mode):
    return layer(s, b if b == 1 else 8, h, a, t, mode)


@fails_with(
    "wrong value",
    "the number of bytes that each device saves",
    hint="write_two_sums_values_axis",
    where=lambda s, b, h, a, t, mode: float32_cannot(s, b, h, a, t, mode),
)
def in_single_precision(*arguments):
    return int(np.float32(layer(*arguments)))


def float32_cannot(*arguments):
    return int(np.float32(layer(*arguments))) != layer(*arguments)


def special(name, holds):
    """Wrong for some sizes alone."""

    def answer(s, b, h, a, t, mode):
        return layer(s, b, h, a, t, mode) + holds(s, b, h, a, t)

    where = lambda s, b, h, a, t, mode: holds(s, b, h, a, t)  # noqa: E731
    fails_with(
        "wrong value",
        "the number of bytes that each device saves",
        hint="write_two_sums_values_axis",
        where=where,
        name=name,
    )(answer)


special("one_token_each", lambda s, b, h, a, t: s == t)
special("some_tokens_each", lambda s, b, h, a, t: t < s < 4096)
special("heads_of_one_column", lambda s, b, h, a, t: h == a)
special("heads_of_some_columns", lambda s, b, h, a, t: a < h < 25600)
special("one_head_each", lambda s, b, h, a, t: a == t)
special("some_heads_each", lambda s, b, h, a, t: t < a < 128)
special("one_device", lambda s, b, h, a, t: t == 1)
special("no_power_of_two", lambda s, b, h, a, t: t & (t - 1) > 0)


@fails_with(
    "wrong value", "total over all devices", "on one device", hint="take_2_write_down_table", where=lambda t, **_: t > 1
)
def of_all_devices(s, b, h, a, t, mode):
    return t * layer(s, b, h, a, t, mode)


@fails_with(
    "wrong value",
    "every value along the token axis",
    "which are sharded along the head axis",
    hint="take_2_write_down_table",
    where=lambda mode, t, **_: mode in (SEQUENCE, BOTH) and t > 1,
)
def a_share_of_the_tokens_for_all(s, b, h, a, t, mode):
    return layer(s // t if "sequence" in mode else s, b, h, a, t, mode)


@fails_with(
    "wrong value",
    "width of the layer instead of the number of heads",
    "two token axes",
    hint="table_shapes_end_many_heads",
    where=lambda mode, h, a, **_: mode in (TENSOR, SEQUENCE) and h > a,
)
def width_for_heads(s, b, h, a, t, mode):
    more = 5 * (h - a) * s * s * b // t if mode in (TENSOR, SEQUENCE) else 0
    return layer(s, b, h, a, t, mode) + more

"""What is expected of an answer; only the judge reads this."""

from grader.exercises.feedback import read_feedback

feedback = read_feedback(__file__)
mistake = feedback.mistake

# A layer's values as (elements in units of s b h, or of a s s b; bytes per element). Inside are the values with an axis
# of heads or hidden columns; outside are those that every device holds whole, x first.
_INSIDE = ((1, 2), (1, 2), (1, 2), (1, 2), (4, 2), (4, 2))
_OUTSIDE = ((1, 2), (1, 2), (1, 1), (1, 2), (1, 2), (1, 1))
_MATRIX = ((1, 2), (1, 1), (1, 2))


def reference(s, b, h, a, t, mode):
    return _saved_bytes(s, b, h, a, t, mode)


def _saved_bytes(s, b, h, a, t, mode, size=lambda nbytes: nbytes, inside=_INSIDE, outside=_OUTSIDE, matrix=_MATRIX):
    """Return the bytes saved per device; optionally with other values or element sizes, to model mistakes."""

    def total(values):
        return sum(elements * size(nbytes) for elements, nbytes in values)

    if mode == "full":
        return total(outside[:1]) * s * b * h
    whole, split = total(outside) * s * b * h, total(inside) * s * b * h
    if "selective" not in mode:
        split += total(matrix) * a * s * s * b
    return (whole // t if "sequence" in mode else whole) + split // t


def _with_sizes(**other):
    return lambda *arguments: _saved_bytes(*arguments, **other)


def _with_mode(change):
    """Return an answer that computes the bytes of another mode, except for `full`."""
    return lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, a, t, mode if mode == "full" else change(mode))


def _part_of_matrix_saved(*values):
    """Return an answer whose selective recomputation still saves some of the attention matrix's three values."""

    def kept(s, b, h, a, t, mode):
        left = sum(nbytes for _, nbytes in values) * a * s * s * b // t if "selective" in mode else 0
        return reference(s, b, h, a, t, mode) + left

    return kept


def _whole_matrix(s, b, h, a, t, mode):
    right, of_matrix = reference(s, b, h, a, t, mode), 5 * a * s * s * b
    return right if "selective" in mode or mode == "full" else right - of_matrix // t + of_matrix


def _length_not_squared(s, b, h, a, t, mode):
    right = reference(s, b, h, a, t, mode)
    return right if "selective" in mode or mode == "full" else right - 5 * a * s * (s - 1) * b // t


def _full_recompute(divided):
    return lambda s, b, h, a, t, mode: divided(2 * s * b * h, t) if mode == "full" else reference(s, b, h, a, t, mode)


mistakes = (
    mistake("elements_not_bytes", _with_sizes(size=lambda _: 1)),
    mistake("masks_in_two_bytes", _with_sizes(size=lambda _: 2)),
    mistake("four_bytes_per_element", _with_sizes(size=lambda _: 4)),
    mistake("unsharded_layer", lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, a, 1, mode)),
    mistake("total_over_devices", lambda s, b, h, a, t, mode: t * _saved_bytes(s, b, h, a, t, mode)),
    mistake(
        "every_value_sharded_by_tokens",
        lambda s, b, h, a, t, mode: _saved_bytes(s // t if "sequence" in mode else s, b, h, a, t, mode),
    ),
    mistake(
        "attention_matrix_with_width",
        lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, a, t, mode) + _saved_bytes(s, b, 0, h - a, t, mode),
    ),
    mistake("replicated_values_divided", _with_mode(lambda mode: mode + "+sequence")),
    mistake("without_sequence_parallelism", _with_mode(lambda mode: mode.replace("+sequence", ""))),
    mistake("without_selective_recomputation", _with_mode(lambda mode: mode.replace("+selective", ""))),
    *(
        mistake("selective_saves_part_of_attention_matrix", _part_of_matrix_saved(*left))
        for left in (_MATRIX[:1], _MATRIX[1:2], _MATRIX[:2], _MATRIX[::2])
    ),
    mistake("attention_matrix_of_all_heads", _whole_matrix),
    mistake("one_attention_matrix", lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, 1, t, mode)),
    mistake("hidden_values_with_width_of_layer", _with_sizes(inside=((1, 2),) * 6)),
    mistake("without_layer_input", _with_sizes(outside=_OUTSIDE[1:])),
    mistake("one_mask_outside_attention", _with_sizes(outside=_OUTSIDE[:5])),
    mistake("without_input_or_output_of_gelu", _with_sizes(inside=_INSIDE[:5])),
    mistake("without_attention_matrix", _with_sizes(matrix=())),
    mistake("sequence_length_not_squared", _length_not_squared),
    mistake("batch_of_one_sequence", lambda s, b, h, a, t, mode: _saved_bytes(s, 1, h, a, t, mode)),
    mistake("full_divides_layer_input", _full_recompute(lambda nbytes, t: nbytes // t)),
    mistake("full_saves_nothing", _full_recompute(lambda nbytes, t: 0)),
)

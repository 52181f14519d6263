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


def _in_mode(change):
    """Return an answer that computes the bytes of another mode, except for `full`."""
    return lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, a, t, mode if mode == "full" else change(mode))


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


def _full_recompute(divided):
    return lambda s, b, h, a, t, mode: divided(2 * s * b * h, t) if mode == "full" else reference(s, b, h, a, t, mode)


mistakes = (
    mistake("counts_elements_not_bytes", _with_sizes(size=lambda _: 1)),
    mistake("counts_2_bytes_element_mask", _with_sizes(size=lambda _: 2)),
    mistake("counts_4_bytes_every_element", _with_sizes(size=lambda _: 4)),
    mistake("one_device_saves_layer_not", lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, a, 1, mode)),
    mistake("all_devices_save_together", lambda s, b, h, a, t, mode: t * _saved_bytes(s, b, h, a, t, mode)),
    mistake(
        "gives_every_value_th_tokens",
        lambda s, b, h, a, t, mode: _saved_bytes(s // t if "sequence" in mode else s, b, h, a, t, mode),
    ),
    mistake(
        "attention_matrix_uses_width_layer",
        lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, a, t, mode) + _saved_bytes(s, b, 0, h - a, t, mode),
    ),
    mistake("divides_values_every_device_holds", _in_mode(lambda mode: mode + "+sequence")),
    mistake("ignores_sequence_parallelism", _in_mode(lambda mode: mode.replace("+sequence", ""))),
    mistake("ignores_selective_recomputation", _in_mode(lambda mode: mode.replace("+selective", ""))),
    *(
        mistake("selective_recomputation_still_counts_part", _matrix_left(*left))
        for left in (_MATRIX[:1], _MATRIX[1:2], _MATRIX[:2], _MATRIX[::2])
    ),
    mistake("counts_attention_matrix_all_heads", _matrix_whole),
    mistake("counts_one_attention_matrix_not", lambda s, b, h, a, t, mode: _saved_bytes(s, b, h, 1, t, mode)),
    mistake("counts_mlp_hidden_values_wide", _with_sizes(inside=((1, 2),) * 6)),
    mistake("leaves_out_layer_input_another", _with_sizes(outside=_OUTSIDE[1:])),
    mistake("counts_one_mask_outside_attention", _with_sizes(outside=_OUTSIDE[:5])),
    mistake("leaves_out_input_output_gelu", _with_sizes(inside=_INSIDE[:5])),
    mistake("leaves_out_attention_matrix", _with_sizes(matrix=())),
    mistake("number_tokens_once_not_squared", _tokens_once),
    mistake("batch_one_sequence", lambda s, b, h, a, t, mode: _saved_bytes(s, 1, h, a, t, mode)),
    mistake("divides_layer_input_full_recomputation", _full_recompute(lambda nbytes, t: nbytes // t)),
    mistake("saves_nothing_full_recomputation", _full_recompute(lambda nbytes, t: 0)),
)

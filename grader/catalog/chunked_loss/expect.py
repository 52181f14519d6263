"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.feedback import read_feedback
from grader.exercises.peaks import InPieces, PeakAtMost
from grader.exercises.requirements import Recomputes, Requirement, SavesAtMost

feedback = read_feedback(__file__)
mistake = feedback.mistake


def sample_input(rng, argument):
    """Draw numbers whose matmuls are so large that no two words are about equally likely. The longest rows have logits
    of about 100, whose exponentials overflow in float32."""
    size = rng.uniform(0.3, 1, argument.shape)
    drawn = (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)
    if argument.shape[-1] == 16 and argument.dtype == np.float32:
        drawn[:, 0] = 10
    return drawn


def _row_losses(hidden, vocabulary, labels, axis=-1):
    """Return the loss of each row."""
    return -jnp.take_along_axis(jax.nn.log_softmax(hidden @ vocabulary.T, axis), labels[:, None], axis=-1)[:, 0]


def _rows_per_chunk(hidden, chunks):
    return -(-len(hidden) // chunks)


def _combined(combine):
    """Return a loss that `combine` computes from the rows' losses, the rows per chunk, and the number of chunks."""
    return lambda hidden, vocabulary, labels, chunks: combine(
        _row_losses(hidden, vocabulary, labels), _rows_per_chunk(hidden, chunks), chunks
    )


def _with_padding(combine):
    """Return a loss that `combine` computes from the losses of all rows, padding included, and the number of rows."""

    def loss(hidden, vocabulary, labels, chunks):
        beyond = [(0, _rows_per_chunk(hidden, chunks) * chunks - len(hidden))]
        padded = _row_losses(jnp.pad(hidden, [*beyond, (0, 0)]), vocabulary, jnp.pad(labels, beyond))
        return combine(padded, len(hidden))

    return loss


def _mean_of_chunk_means(loss, rows, chunks):
    means = [jnp.mean(loss[start : start + rows]) for start in range(0, len(loss), rows)]
    return sum(means) / len(means)


def _mean_with_rows_twice(loss, rows, chunks):
    starts = jnp.minimum(jnp.arange(0, rows * chunks, rows), len(loss) - rows)
    return jnp.sum(loss[starts[:, None] + jnp.arange(rows)]) / len(loss)


def _with_labels_of_first_chunk(hidden, vocabulary, labels, chunks):
    rows = _rows_per_chunk(hidden, chunks)
    return jnp.mean(_row_losses(hidden, vocabulary, labels[jnp.arange(len(hidden)) % rows]))


mistakes = (
    mistake("mean_of_means", _combined(_mean_of_chunk_means)),
    mistake("sum_not_mean", _combined(lambda loss, *_: jnp.sum(loss))),
    mistake("sum_with_padding", _with_padding(lambda loss, n: jnp.sum(loss) / n)),
    mistake("mean_with_padding", _with_padding(lambda loss, n: jnp.mean(loss))),
    mistake(
        "sum_without_remaining_rows",
        _combined(lambda loss, rows, chunks: jnp.sum(loss[: len(loss) // chunks * chunks]) / len(loss)),
    ),
    mistake(
        "mean_without_remaining_rows",
        _combined(lambda loss, rows, chunks: jnp.mean(loss[: len(loss) // chunks * chunks])),
    ),
    mistake("some_rows_twice", _combined(_mean_with_rows_twice)),
    mistake("labels_of_first_chunk", _with_labels_of_first_chunk),
    mistake("last_chunk_alone", _combined(lambda loss, rows, chunks: jnp.sum(loss[rows * (chunks - 1) :]) / len(loss))),
    mistake("wrong_sign", _combined(lambda loss, *_: -jnp.mean(loss))),
    mistake(
        "without_log_sum_exp",
        lambda hidden, vocabulary, labels, chunks: (
            -jnp.mean(jnp.take_along_axis(hidden @ vocabulary.T, labels[:, None], axis=-1))
        ),
    ),
    mistake(
        "softmax_over_rows",
        lambda hidden, vocabulary, labels, chunks: jnp.mean(_row_losses(hidden, vocabulary, labels, axis=0)),
    ),
)


def requirements(case):
    n, d, V, chunks = (case.structure[symbol] for symbol in ("n", "d", "V", "chunks"))
    asked: list[Requirement] = [
        SavesAtMost(
            "all chunks' rows",
            count=chunks,
            parts="chunks of rows",
            too_much="Which saved values are not rows of `hidden`? Is the whole loss of a chunk computed inside a "
            "jax.checkpoint that has no policy?",
            extra_parts=2 if chunks > 2 else 0,  # a few numbers per row may be saved, such as its sum
        )
    ]
    if n % chunks == 0:  # matmuls with padding rows count too
        asked.append(Recomputes(1, too_many="How many times does one iteration of your loop compute its logits?"))
    rows = -(-n // chunks)
    single = case.structure["dtype"] == "float32"  # other dtypes may be summed in twice as many bytes
    large = single and chunks > 5 and rows * V > 300  # otherwise other arrays dominate what XLA allocates
    # A chunk's logits 2.2 times; the vocabulary's gradient twice; the rows in chunks and their gradient.
    most = 2.2 + 2 * d / rows + 2 * chunks * d / V
    most += 4 * chunks / V  # numbers per row: the label, the mask, and values computed from these
    peak = PeakAtMost(
        round(most) if large else round((1 if single else 2) * most) + 1,
        too_high="How many chunks does one of your checkpoints contain? Can XLA recompute several chunks at the same "
        "time?",
        unit="one chunk's logits",
        compiled=large,
        trip_count=chunks,
    )
    pieces = InPieces(
        rows,
        of=n,
        pieces="chunks",
        too_large="For how many rows does your answer compute logits at once? Check several numbers of chunks.",
    )
    return [asked, [pieces], [peak] if large or peak.most < chunks else []]

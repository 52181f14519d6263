"""Wrong answers to chunked_loss, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies


def losses(hidden, vocabulary, labels, axis=-1):
    """One for each row."""
    likely = jax.nn.log_softmax(hidden @ vocabulary.T, axis)
    return -jnp.take_along_axis(likely, labels[:, None], axis=-1)[:, 0]


def cut(array, chunks):
    rows = -(-len(array) // chunks)
    filled = jnp.pad(array, [(0, rows * chunks - len(array)), *[(0, 0)] * (array.ndim - 1)])
    return filled.reshape(chunks, rows, *array.shape[1:])


def scanned(of_chunk, hidden, vocabulary, labels, chunks):
    """Return the sum of `of_chunk` over the rows, labels and mask of each chunk."""
    each = cut(hidden, chunks), cut(labels, chunks), cut(jnp.ones(len(hidden), hidden.dtype), chunks)
    zero = jnp.zeros((), hidden.dtype)
    return jax.lax.scan(lambda total, own: (total + of_chunk(vocabulary, *own), None), zero, each)[0]


def chunk_loss(vocabulary, rows, labels, counts):
    return jnp.sum(losses(rows, vocabulary, labels) * counts)


def right(hidden, vocabulary, labels, chunks):
    return scanned(jax.checkpoint(chunk_loss), hidden, vocabulary, labels, chunks) / len(hidden)


def sliced(hidden, labels, chunks):
    """Return the rows and labels of each chunk; the last chunk may be shorter."""
    rows = -(-len(hidden) // chunks)
    return [(hidden[at : at + rows], labels[at : at + rows]) for at in range(0, len(hidden), rows)]


@fails_with(
    "also saved",
    "logits, f32[96,200], 75 KiB",
    "inside a jax.checkpoint that has no policy",
    hint="forward_pass_saves_more_rows",
)
def plain(hidden, vocabulary, labels, chunks):
    return jnp.mean(losses(hidden, vocabulary, labels))


@fails_with(
    "also saved",
    "as much as 614 chunks of rows",
    "inside a jax.checkpoint that has no policy",
    hint="forward_pass_saves_more_rows",
)
def written_out_without_a_checkpoint(hidden, vocabulary, labels, chunks):
    return sum(jnp.sum(losses(rows, vocabulary, of)) for rows, of in sliced(hidden, labels, chunks)) / len(hidden)


@fails_with(
    "also saved",
    "a copy of vocabulary, f32[8,200], 6.25 KiB",
    "inside a jax.checkpoint that has no policy",
    hint="forward_pass_saves_transposed_copy",
)
def vocabulary_transposed_before(hidden, vocabulary, labels, chunks):
    def of_chunk(words, *own):
        return chunk_loss(words.T, *own)

    return scanned(jax.checkpoint(of_chunk), hidden, vocabulary.T, labels, chunks) / len(hidden)


@fails_with(
    "wrong value",
    "it is infinite",
    "an exponential overflow",
    hint="one_case_all_logits_about",
    cases=("1 row in 1 chunk, under jax.jit",),
)
def exponentials_as_they_are(hidden, vocabulary, labels, chunks):
    def of_chunk(vocabulary, rows, labels, counts):
        logits = rows @ vocabulary.T
        right = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return jnp.sum((jnp.log(jnp.sum(jnp.exp(logits), axis=-1)) - right) * counts)

    return scanned(jax.checkpoint(of_chunk), hidden, vocabulary, labels, chunks) / len(hidden)


@fails_with("wrong value", "the mean of the chunks' means", "how much weight", hint="take_7_rows_hidden_chunks")
def mean_of_means(hidden, vocabulary, labels, chunks):
    def of_chunk(vocabulary, rows, labels, counts):
        return chunk_loss(vocabulary, rows, labels, counts) / jnp.sum(counts)

    return scanned(jax.checkpoint(of_chunk), hidden, vocabulary, labels, chunks) / chunks


@fails_with("wrong value", "not their mean", "divide the sum by", hint="take_7_rows_hidden_chunks")
def sum_of_all(hidden, vocabulary, labels, chunks):
    return right(hidden, vocabulary, labels, chunks) * len(hidden)


def all_rows(vocabulary, rows, labels, counts):
    return jnp.sum(losses(rows, vocabulary, labels))


@fails_with("wrong value", "its sum includes the rows of zeros", "exclude these rows", hint="take_7_rows_hidden_chunks")
def filled_rows_counted(hidden, vocabulary, labels, chunks):
    return scanned(jax.checkpoint(all_rows), hidden, vocabulary, labels, chunks) / len(hidden)


@fails_with(
    "wrong value", "its mean includes the rows of zeros", "exclude these rows", hint="take_7_rows_hidden_chunks"
)
def filled_rows_in_the_mean(hidden, vocabulary, labels, chunks):
    total = scanned(jax.checkpoint(all_rows), hidden, vocabulary, labels, chunks)
    return total / (chunks * -(-len(hidden) // chunks))


@fails_with("wrong value", "its sum leaves out the rows", "does not divide", hint="take_7_rows_hidden_chunks")
def rows_left_over_left_out(hidden, vocabulary, labels, chunks):
    n = len(hidden) // chunks * chunks
    return scanned(jax.checkpoint(chunk_loss), hidden[:n], vocabulary, labels[:n], chunks) / len(hidden)


@fails_with("wrong value", "its mean leaves out the rows", "does not divide", hint="take_7_rows_hidden_chunks")
def mean_of_whole_chunks(hidden, vocabulary, labels, chunks):
    n = len(hidden) // chunks * chunks
    return right(hidden[:n], vocabulary, labels[:n], chunks)


@fails_with("wrong value", "it counts some rows twice", "never reads past the end", hint="take_7_rows_hidden_chunks")
def slices_past_the_end(hidden, vocabulary, labels, chunks):
    rows = -(-len(hidden) // chunks)

    @jax.checkpoint
    def body(total, start):
        own = (jax.lax.dynamic_slice_in_dim(array, start, rows) for array in (hidden, labels))
        return total + all_rows(vocabulary, *own, None), None

    return jax.lax.scan(body, jnp.zeros((), hidden.dtype), jnp.arange(chunks) * rows)[0] / len(hidden)


@fails_with(
    "wrong value",
    "the first chunk's labels for every chunk",
    "Which labels does each chunk use",
    hint="take_7_rows_hidden_chunks",
)
def always_the_first_labels(hidden, vocabulary, labels, chunks):
    first = labels[: -(-len(hidden) // chunks)]

    def of_chunk(vocabulary, rows, labels, counts):
        return chunk_loss(vocabulary, rows, first, counts)

    return scanned(jax.checkpoint(of_chunk), hidden, vocabulary, labels, chunks) / len(hidden)


@fails_with(
    "wrong value", "the loss of the last chunk alone", "the previous iterations", hint="take_7_rows_hidden_chunks"
)
def no_sum(hidden, vocabulary, labels, chunks):
    each = cut(hidden, chunks), cut(labels, chunks), cut(jnp.ones(len(hidden), hidden.dtype), chunks)
    loss = jax.checkpoint(chunk_loss)
    zero = jnp.zeros((), hidden.dtype)
    return jax.lax.scan(lambda _, own: (loss(vocabulary, *own), None), zero, each)[0] / len(hidden)


@fails_with("wrong value", "it has the wrong sign", "or the other way around", hint="take_7_rows_hidden_chunks")
def likelihood(hidden, vocabulary, labels, chunks):
    return -right(hidden, vocabulary, labels, chunks)


@fails_with("wrong value", "without the logarithm of the sum", "Which two terms", hint="take_7_rows_hidden_chunks")
def logits_of_the_labels(hidden, vocabulary, labels, chunks):
    def of_chunk(vocabulary, rows, labels, counts):
        return -jnp.sum(jnp.take_along_axis(rows @ vocabulary.T, labels[:, None], axis=-1)[:, 0] * counts)

    return scanned(jax.checkpoint(of_chunk), hidden, vocabulary, labels, chunks) / len(hidden)


@fails_with("wrong gradient", " vocabulary", "zero everywhere", hint="both_hidden_vocabulary_get_gradient")
def vocabulary_stopped(hidden, vocabulary, labels, chunks):
    return right(hidden, jax.lax.stop_gradient(vocabulary), labels, chunks)


@fails_with("wrong type", "f32[96]", hint="test_one_chunk_alone_shapes")
def each_rows_loss(hidden, vocabulary, labels, chunks):
    loss = jax.checkpoint(lambda own: losses(own[0], vocabulary, own[1]))
    return jax.lax.map(loss, (cut(hidden, chunks), cut(labels, chunks))).reshape(-1)[: len(hidden)]


@fails_with("raises", "does not divide", hint="test_one_chunk_alone_shapes")
def reshaped(hidden, vocabulary, labels, chunks):
    each = hidden.reshape(chunks, -1, hidden.shape[1]), labels.reshape(chunks, -1)
    return jnp.sum(jax.lax.map(jax.checkpoint(lambda own: all_rows(vocabulary, *own, None)), each)) / len(hidden)


@fails_with("raises", "do you transpose", hint="test_one_chunk_alone_shapes")
def not_transposed(hidden, vocabulary, labels, chunks):
    return jnp.mean(jax.nn.log_softmax(hidden @ vocabulary))


@fails_with(
    "peak",
    "times the size of one chunk's logits",
    "at the same time",
    hint="forward_pass_saves_little_logits",
    beyond="PeakAtMost.most",
)
def two_turns_at_once(hidden, vocabulary, labels, chunks):
    each = cut(hidden, chunks), cut(labels, chunks), cut(jnp.ones(len(hidden), hidden.dtype), chunks)
    zero, of_chunk = jnp.zeros((), hidden.dtype), jax.checkpoint(chunk_loss)
    total, _ = jax.lax.scan(lambda total, own: (total + of_chunk(vocabulary, *own), None), zero, each, unroll=2)
    return total / len(hidden)


@fails_with(
    "peak",
    "processes 9 rows at once",
    "at most 8 rows",
    hint="forward_pass_saves_little_logits",
    beyond="InPieces.rows",
)
def a_row_too_many_where_it_comes_out_even(hidden, vocabulary, labels, chunks):
    """Cut from the front, into pieces of that many rows."""
    rows = len(hidden) // chunks + (len(hidden) > chunks)
    count = -(-len(hidden) // rows)
    filled = jnp.pad(hidden, [(0, rows * count - len(hidden)), (0, 0)])
    counts = jnp.arange(len(filled)) < len(hidden)
    each = (
        filled.reshape(count, rows, -1),
        jnp.pad(labels, (0, len(filled) - len(labels))).reshape(count, rows),
        counts.astype(hidden.dtype).reshape(count, rows),
    )
    zero, of_chunk = jnp.zeros((), hidden.dtype), jax.checkpoint(chunk_loss)
    total, _ = jax.lax.scan(lambda total, own: (total + of_chunk(vocabulary, *own), None), zero, each)
    return total / len(hidden)


@fails_with(
    "also saved",
    "as much as",
    "inside a jax.checkpoint that has no policy",
    hint="forward_pass_saves_more_rows",
    beyond="SavesAtMost.extra_parts",
)
def two_numbers_of_each_row(hidden, vocabulary, labels, chunks):
    def of_chunk(vocabulary, rows, labels, counts):
        logits = rows @ vocabulary.T
        largest = checkpoint_name(jnp.max(jax.lax.stop_gradient(logits), axis=-1), "kept")
        total = checkpoint_name(jnp.sum(jnp.exp(logits - largest[:, None]), axis=-1), "kept")
        right = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return jnp.sum((jnp.log(total) + largest - right) * counts)

    kept = jax.checkpoint(of_chunk, policy=policies.save_only_these_names("kept"))
    return scanned(kept, hidden, vocabulary, labels, chunks) / len(hidden)


@fails_with(
    "recomputes",
    "in 24 pieces",
    "compute its logits",
    hint="often_one_iteration_loop_compute",
    beyond="Recomputes.count",
)
def logits_once_more(hidden, vocabulary, labels, chunks):
    @jax.checkpoint
    def of_chunk(vocabulary, rows, *own):
        rows = also_run_backward(lambda rows, vocabulary: rows @ vocabulary.T, rows, rows, vocabulary)
        return chunk_loss(vocabulary, rows, *own)

    return scanned(of_chunk, hidden, vocabulary, labels, chunks) / len(hidden)

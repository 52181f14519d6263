"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import InPieces, PeakAtMost
from grader.exercises.requirements import KnownMistake, Recomputes, Requirement, SavesAtMost


def sample_input(rng, argument):
    """Draw numbers whose matmuls are so large that no two words are about equally likely. The longest rows have logits
    of about 100, whose exponentials overflow in float32."""
    size = rng.uniform(0.3, 1, argument.shape)
    drawn = (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)
    if argument.shape[-1] == 16 and argument.dtype == np.float32:
        drawn[:, 0] = 10
    return drawn


def _each(hidden, vocabulary, labels, axis=-1):
    """Return the loss of each row."""
    return -jnp.take_along_axis(jax.nn.log_softmax(hidden @ vocabulary.T, axis), labels[:, None], axis=-1)[:, 0]


def _rows(hidden, chunks):
    return -(-len(hidden) // chunks)


def _filled(hidden, vocabulary, labels, chunks):
    """Return the loss of each row, padding included."""
    beyond = [(0, _rows(hidden, chunks) * chunks - len(hidden))]
    return _each(jnp.pad(hidden, [*beyond, (0, 0)]), vocabulary, jnp.pad(labels, beyond))


def _means(hidden, vocabulary, labels, chunks):
    loss, rows = _each(hidden, vocabulary, labels), _rows(hidden, chunks)
    means = [jnp.mean(loss[start : start + rows]) for start in range(0, len(loss), rows)]
    return sum(means) / len(means)


def _whole_chunks(of):
    return lambda hidden, vocabulary, labels, chunks: of(
        _each(hidden, vocabulary, labels)[: len(hidden) // chunks * chunks], len(hidden)
    )


def _clamped(hidden, vocabulary, labels, chunks):
    rows, n = _rows(hidden, chunks), len(hidden)
    starts = jnp.minimum(jnp.arange(0, rows * chunks, rows), n - rows)
    return jnp.sum(_each(hidden, vocabulary, labels)[starts[:, None] + jnp.arange(rows)]) / n


def _labels_of_the_first(hidden, vocabulary, labels, chunks):
    rows = _rows(hidden, chunks)
    return jnp.mean(_each(hidden, vocabulary, labels[jnp.arange(len(hidden)) % rows]))


_SHORT = "What does your answer do with the last chunk if `chunks` does not divide the number of rows?"
_PADDING = "What is the loss of a row of zeros, and where do you exclude these rows from the sum?"

mistakes = (
    KnownMistake(
        "it is the mean of the chunks' means",
        _means,
        "If the last chunk is shorter, how much weight does each of its rows get in a mean of means?",
    ),
    KnownMistake(
        "it is the sum of all rows' losses, not their mean",
        lambda hidden, vocabulary, labels, chunks: jnp.sum(_each(hidden, vocabulary, labels)),
        "What do you divide the sum by, and where?",
    ),
    KnownMistake(
        "its sum includes the rows of zeros that pad the last chunk",
        lambda hidden, vocabulary, labels, chunks: jnp.sum(_filled(hidden, vocabulary, labels, chunks)) / len(hidden),
        _PADDING,
    ),
    KnownMistake(
        "its mean includes the rows of zeros that pad the last chunk",
        lambda hidden, vocabulary, labels, chunks: jnp.mean(_filled(hidden, vocabulary, labels, chunks)),
        _PADDING,
    ),
    KnownMistake(
        "its sum leaves out the rows that remain after chunks of equal size",
        _whole_chunks(lambda loss, n: jnp.sum(loss) / n),
        _SHORT,
    ),
    KnownMistake(
        "its mean leaves out the rows that remain after chunks of equal size",
        _whole_chunks(lambda loss, n: jnp.mean(loss)),
        _SHORT,
    ),
    KnownMistake(
        "it counts some rows twice",
        _clamped,
        "`jax.lax.dynamic_slice` never reads past the end of an array: it moves the start instead. Which rows does it "
        "return for a shorter last chunk?",
    ),
    KnownMistake(
        "it uses the first chunk's labels for every chunk",
        _labels_of_the_first,
        "Which labels does each chunk use, and where does it get them?",
    ),
    KnownMistake(
        "it is the loss of the last chunk alone",
        lambda hidden, vocabulary, labels, chunks: (
            jnp.sum(_each(hidden, vocabulary, labels)[_rows(hidden, chunks) * (chunks - 1) :]) / len(hidden)
        ),
        "Does each iteration of your loop add to the sum of the previous iterations, or replace it?",
    ),
    KnownMistake(
        "it has the wrong sign",
        lambda hidden, vocabulary, labels, chunks: -jnp.mean(_each(hidden, vocabulary, labels)),
        "Which of the two do you subtract from the other: the label's logit, or the logarithm of the sum?",
    ),
    KnownMistake(
        "it is minus the mean of the labels' logits, without the logarithm of the sum",
        lambda hidden, vocabulary, labels, chunks: (
            -jnp.mean(jnp.take_along_axis(hidden @ vocabulary.T, labels[:, None], axis=-1))
        ),
        "Which two terms does the loss of a row consist of?",
    ),
    KnownMistake(
        "its softmax goes over rows, not over words",
        lambda hidden, vocabulary, labels, chunks: jnp.mean(_each(hidden, vocabulary, labels, axis=0)),
        "Which axis of the logits belongs to the words?",
    ),
)

error_questions = (
    (
        r"reshape|split|divide|size|concatenate",
        "How many rows does each of your chunks have, and what happens if `chunks` does not divide the number of rows?",
    ),
    (
        r"carry|must be a pair",
        "A scan body returns a pair: the next carry and an output. Does yours, and does the carry keep hidden's dtype?",
    ),
    (
        r"dot_general|matmul|contracting",
        "The rows of a chunk are (rows, d) and vocabulary is (V, d). Which of the two do you transpose?",
    ),
    (r"leading axis|length", "How many chunks does each of the scanned arrays have along its first axis?"),
    (
        r"Reverse-mode",
        "Is the number of iterations of your loop known when JAX traces it? `jax.lax.scan` always knows it.",
    ),
    (r"positional argument", "Which arguments does a scan pass to its body, and which does your function take?"),
    (r"integer|slice|concrete|Tracer", "Which number of rows in that line is a traced value, not a Python integer?"),
)

hints = (
    Hint(
        "The logits of all rows are the one large array here. What do you need from the logits of a row, and how large "
        "is that?"
    ),
    Hint(
        "Your forward pass saves more than the rows of the chunks. If a loop computes the logits chunk by chunk, what "
        "does each iteration save for the backward pass, and what would make it recompute that instead?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Your forward pass saves a transposed copy of `vocabulary`. Transpose it inside the checkpointed function "
        "instead: then only `vocabulary` itself is saved.",
        on_kinds=("also saved",),
        on_text=("a copy of vocabulary, f32[8,200]", "f32[12,8,8], 3 KiB."),
    ),
    Hint(
        "Your forward pass saves little, but logits of more rows than one chunk has are in memory at the same time. "
        "Does each checkpoint contain one chunk? Does a `scan` run the chunks one after another?",
        on_kinds=("peak",),
    ),
    Hint(
        "Take 7 rows of `hidden` and `chunks=3`. How many rows does each of your chunks have, is every row in exactly "
        "one chunk, and what do you divide the sum by?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "Both `hidden` and `vocabulary` get a gradient, and every chunk adds to the gradient of `vocabulary`. Which "
        "line stops or changes one of them?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "How often does one iteration of your loop compute its logits, and how many nested checkpoints is it in?",
        on_kinds=("recomputes",),
    ),
    Hint(
        "Test one chunk alone. What are the shapes of its rows, its labels and its logits, and what does it return?",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "The mini-example compares four variants. Which of them computes one chunk at a time in the forward pass? "
        "Where does it need a checkpoint to do the same in the backward pass?"
    ),
    Hint(
        "Nearly the answer: scan over the chunks, with the sum so far as the carry. A `jax.checkpoint` inside the body "
        "computes the loss of one chunk from its rows and labels. Pad the last chunk, and multiply its losses by a "
        "mask that is 0 for padding."
    ),
    Hint(
        "In one case all logits are about 100, and `exp(100)` overflows in float32. What does `jax.nn.logsumexp` "
        "subtract from the logits before it takes exponentials?",
        on_kinds=("wrong value",),
        on_text="infinite",
    ),
    *ABOUT_ERRORS,
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
            spare=2 if chunks > 2 else 0,  # a few numbers per row may be saved, such as its sum
        )
    ]
    if n % chunks == 0:  # matmuls with padding rows count too
        asked.append(Recomputes(1, too_many="How often does one iteration of your loop compute its logits?"))
    rows = -(-n // chunks)
    single = case.structure["dtype"] == "float32"  # other dtypes may be summed in twice as many bytes
    large = single and chunks > 5 and rows * V > 300  # otherwise other arrays dominate what XLA allocates
    # A chunk's logits 2.2 times; the vocabulary's gradient twice; the rows in chunks and their gradient.
    most = 2.2 + 2 * d / rows + 2 * chunks * d / V
    numbers = 4 * chunks / V  # per row its label, its mask, and values computed from these
    peak = PeakAtMost(
        round(most) if large else round((1 if single else 2) * (most + numbers)) + 1,
        too_high="How many chunks does one of your checkpoints contain? Can XLA recompute several of them at the same "
        "time?",
        unit="one chunk's logits",
        compiled=large,
        turns=chunks,
    )
    pieces = InPieces(
        rows,
        of=n,
        pieces="chunks",
        too_large="For how many rows does your answer compute logits at once? Check it for every number of chunks.",
    )
    return [asked, [pieces], [peak] if large or peak.most < chunks else []]

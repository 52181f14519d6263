"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import InPieces, PeakAtMost
from grader.exercises.requirements import Mistake, Recomputes, Requirement, SavesAtMost


def draw(rng, argument):
    """Numbers whose products are large enough that no two words are about as likely; of the longest rows all products
    are about a hundred, and exponentials of these are too large for a float32."""
    size = rng.uniform(0.3, 1, argument.shape)
    drawn = (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)
    if argument.shape[-1] == 16 and argument.dtype == np.float32:
        drawn[:, 0] = 10
    return drawn


def _each(hidden, vocabulary, labels, axis=-1):
    """The loss of each row."""
    return -jnp.take_along_axis(jax.nn.log_softmax(hidden @ vocabulary.T, axis), labels[:, None], axis=-1)[:, 0]


def _rows(hidden, chunks):
    return -(-len(hidden) // chunks)


def _filled(hidden, vocabulary, labels, chunks):
    """The loss of each row, and of the rows of zeros behind them."""
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


_SHORT = "What does your answer do with the last chunk, if the rows do not come out even?"

mistakes = (
    Mistake(
        "this is the mean of the chunks' means",
        _means,
        "If the last chunk is shorter, how much does one of its rows weigh in a mean of means?",
    ),
    Mistake(
        "this is the sum of all rows' losses, not their mean",
        lambda hidden, vocabulary, labels, chunks: jnp.sum(_each(hidden, vocabulary, labels)),
        "What is the sum divided by, and when?",
    ),
    Mistake(
        "this is the value with the rows of zeros counted that fill up the last chunk",
        lambda hidden, vocabulary, labels, chunks: jnp.sum(_filled(hidden, vocabulary, labels, chunks)) / len(hidden),
        "What is the loss of a row of zeros, and where is it taken out of the sum?",
    ),
    Mistake(
        "this is the mean over the rows of zeros too that fill up the last chunk",
        lambda hidden, vocabulary, labels, chunks: jnp.mean(_filled(hidden, vocabulary, labels, chunks)),
        "What is the loss of a row of zeros, and where is it taken out of the sum?",
    ),
    Mistake(
        "this is the value without the rows that are left over",
        _whole_chunks(lambda loss, n: jnp.sum(loss) / n),
        _SHORT,
    ),
    Mistake(
        "this is the mean without the rows that are left over", _whole_chunks(lambda loss, n: jnp.mean(loss)), _SHORT
    ),
    Mistake(
        "this is the value with some rows counted twice",
        _clamped,
        "jax.lax.dynamic_slice never reads past the end: from where does it take the last chunk, if that is shorter?",
    ),
    Mistake(
        "this is the value with the first chunk's labels for every chunk",
        _labels_of_the_first,
        "From where does each chunk get its labels?",
    ),
    Mistake(
        "this is the loss of the last chunk alone",
        lambda hidden, vocabulary, labels, chunks: (
            jnp.sum(_each(hidden, vocabulary, labels)[_rows(hidden, chunks) * (chunks - 1) :]) / len(hidden)
        ),
        "What does one turn of your loop do with the sum of the turns before?",
    ),
    Mistake(
        "this is the value with its sign turned round",
        lambda hidden, vocabulary, labels, chunks: -jnp.mean(_each(hidden, vocabulary, labels)),
        "Which of the two is subtracted from the other: the label's logit, or the logarithm of the sum?",
    ),
    Mistake(
        "this is minus the mean of the labels' logits, without the logarithm of the sum",
        lambda hidden, vocabulary, labels, chunks: (
            -jnp.mean(jnp.take_along_axis(hidden @ vocabulary.T, labels[:, None], axis=-1))
        ),
        "Which two things does a row's loss consist of?",
    ),
    Mistake(
        "this is the value with the softmax over rows, not over words",
        lambda hidden, vocabulary, labels, chunks: jnp.mean(_each(hidden, vocabulary, labels, axis=0)),
        "Along which axis of the logits do the words lie?",
    ),
)

error_questions = (
    (
        r"reshape|split|divide|size|concatenate",
        "Into how many rows is each chunk cut, and what does your answer do where they do not come out even?",
    ),
    (r"carry|must be a pair", "Which two things does the body of a scan return, and is the carry of hidden's dtype?"),
    (r"dot_general|matmul|contracting", "hidden is (rows, d) and vocabulary (V, d): which of them is transposed?"),
    (r"leading axis|length", "Over how many chunks does each of the scanned arrays run?"),
    (r"Reverse-mode", "Does your loop know how often it will turn? Which of JAX's loops always does?"),
    (r"positional argument", "What does a scan call its body with, and what does your function take?"),
    (r"integer|slice|concrete|Tracer", "Which number of rows is known only when the program runs?"),
)

hints = (
    Hint(
        "The logits of all rows are the one large array here. What is computed from a row's logits, and how large is "
        "it?"
    ),
    Hint(
        "Something of every row's logits is kept. If a loop makes them chunk by chunk, what does each turn keep for "
        "the backward pass, and how is it told not to?",
        after=("also saved",),
    ),
    Hint(
        "A transposed copy of `vocabulary` is kept, made before the loop or the checkpoint. Where could the "
        "transposition stand, so that nobody has to keep what it returns?",
        after=("also saved",),
        says=("a copy of vocabulary, f32[8,200]", "f32[12,8,8], 3 KiB."),
    ),
    Hint(
        "Little is kept, but the logits of many chunks are in memory at the same time. How many chunks does one of "
        "your checkpoints hold? And how many turns of a loop that Python writes out may XLA run at once?",
        after=("peak",),
    ),
    Hint(
        "Take `hidden` of 7 rows and `chunks` of 3. How many rows has each of your chunks, is every row in exactly "
        "one, and by what is the sum divided?",
        after=("wrong value",),
    ),
    Hint(
        "`hidden` and `vocabulary` both get gradients, and every chunk adds to the vocabulary's. Which line keeps one "
        "from coming through?",
        after=("wrong gradient",),
    ),
    Hint("How often does one turn of your loop make its logits?", after=("recomputes",)),
    Hint(
        "Try one chunk alone: which shapes have its rows, its labels and its logits, and what does it return?",
        after=("raises", "wrong type"),
    ),
    Hint(
        "The page's table has four ways. Which of them make the logits of one chunk at a time in the forward pass, and "
        "what would one of these have to be told to do so in the backward pass too?"
    ),
    Hint(
        "Nearly the answer: the body of a scan takes the sum so far, and the rows and labels of one chunk; what makes "
        "a chunk's loss is in a `jax.checkpoint`. How do rows that fill up the last chunk stay out of the sum?"
    ),
    Hint(
        "In one case all logits are about a hundred. What is the exponential of that in float32? And what does "
        "`jax.nn.logsumexp` take off before it does as you do?",
        after=("wrong value",),
        says="infinite",
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
            too_much="What does one turn of your loop keep, and is all of the turn inside a checkpoint?",
            spare=2 if chunks > 2 else 0,  # a few numbers of each row may be kept, as its sum
        )
    ]
    if n % chunks == 0:  # rows that fill up a chunk are work too
        asked.append(Recomputes(1, too_many="How often does one turn of your loop make its logits?"))
    rows = -(-n // chunks)
    single = case.structure["dtype"] == "float32"  # sums of others may be in twice as many bytes
    large = single and chunks > 5 and rows * V > 300  # else too much else is in memory for XLA to tell
    # A chunk's logits twice and a bit; the vocabulary's gradient twice; rows in chunks and their gradient.
    most = 2.2 + 2 * d / rows + 2 * chunks * d / V
    numbers = 4 * chunks / V  # of each row its label and whether it counts, in chunks, and what becomes of these
    peak = PeakAtMost(
        round(most) if large else round((1 if single else 2) * (most + numbers)) + 1,
        too_high="How many chunks does one of your checkpoints hold, and may several of them be run again at the same "
        "time?",
        unit="one chunk's logits",
        compiled=large,
        turns=chunks,
    )
    pieces = InPieces(
        rows,
        of=n,
        pieces="chunks",
        too_large="Of how many rows does your answer make logits at once, and is that so for any number of chunks?",
    )
    return [asked, [pieces], [peak] if large or peak.most < chunks else []]

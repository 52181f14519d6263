"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "n": Integers(1, 96),
    "d": Integers(8, 16),
    "V": Integers(40, 200),
    "chunks": Integers(1, "n"),
    "dtype": OneOf(("float32", "float16")),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "chunked_loss(hidden, vocabulary, labels, chunks)"


def cases(rng):
    """Draw cases with many chunks, with a shorter last chunk, with a single chunk, and with chunks of one row."""
    many, rows = map(int, rng.integers([8, 5], [12, 8]))
    return (
        # So large that the alignment of buffers does not matter, and that one chunk is small compared with all chunks.
        case(rng, 96, 12, d=8, V=200),
        # So many chunks that all logits need more memory than one chunk's and the vocabulary's gradient.
        case(rng, many * rows - int(rng.integers(1, rows)), many, d=8, V=int(rng.integers(90, 110))),
        case(rng, 1, 1, d=16, V=40, called="jax.jit"),
        case(rng, few := int(rng.integers(5, 9)), few, dtype="float16"),
    )


def case(rng, n, chunks, d=None, V=None, dtype="float32", called="directly", name=None):
    """Return a case with `n` rows in `chunks` chunks."""
    d, V = d or int(rng.integers(9, 16)), V or int(rng.integers(60, 100))
    labels = rng.integers(V, size=n).astype(np.int32)  # a NumPy array, because importing this module must not start JAX

    def function(hidden, vocabulary, *, name=lambda value, called: value):
        logits = name(hidden @ vocabulary.T, "all logits")
        largest = jnp.max(jax.lax.stop_gradient(logits), axis=-1, keepdims=True)
        powers = name(jnp.exp(logits - largest), "the exponentials of all logits")
        total = jnp.sum(powers, axis=-1)
        name(powers / total[:, None], "the softmax of all logits")
        padded_rows = -(-n // chunks) * chunks
        # A value that may be saved: the rows in chunks, with the last chunk padded.
        filled = jnp.concatenate([hidden, jnp.zeros((padded_rows - n, d), hidden.dtype)])
        name(filled.reshape(chunks, -1, d), "all chunks' rows")
        if chunks > 1:
            name(logits[: -(-n // chunks)], "one chunk's logits")
        right = logits[np.arange(n), labels]
        return name(jnp.mean(jnp.log(total) + largest[:, 0] - right), "the result")

    def apply(answer):
        with jax.ensure_compile_time_eval():  # without tracers, because a custom rule may close over the labels
            own = jnp.asarray(labels)
        return lambda hidden, vocabulary: answer(hidden, vocabulary, own, chunks)

    return Case(
        name or f"{n} row{'s' * (n > 1)} in {chunks} chunk{'s' * (chunks > 1)}" + case_functions.where(called, dtype),
        (jax.ShapeDtypeStruct((n, d), dtype), jax.ShapeDtypeStruct((V, d), dtype)),
        transform=case_functions.transform(called),
        apply=apply,
        function=function,
        structure={"n": n, "d": d, "V": V, "chunks": chunks, "dtype": dtype, "called": called},
    )


shown = case(np.random.default_rng(0), 512, 8, d=64, V=4096, name="for 512 rows, a vocabulary of 4,096 and 8 chunks")

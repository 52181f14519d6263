"""Right answers to chunked_loss, spelled in many ways."""

import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def losses(hidden, vocabulary, labels):
    """One for each row."""
    logits = hidden @ vocabulary.T
    return jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]


def cut(array, chunks):
    rows = -(-len(array) // chunks)
    filled = jnp.pad(array, [(0, rows * chunks - len(array)), *[(0, 0)] * (array.ndim - 1)])
    return filled.reshape(chunks, rows, *array.shape[1:])


@passes
def mapped_over_chunks(hidden, vocabulary, labels, chunks):
    each = jax.lax.map(
        jax.checkpoint(lambda chunk: losses(chunk[0], vocabulary, chunk[1])), (cut(hidden, chunks), cut(labels, chunks))
    )
    return jnp.mean(each.reshape(-1)[: len(hidden)])


@passes
def rows_taken_by_number(hidden, vocabulary, labels, chunks):
    n, rows = len(hidden), -(-len(hidden) // chunks)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def body(total, start):
        places = start + jnp.arange(rows)
        each = losses(hidden[jnp.minimum(places, n - 1)], vocabulary, labels[jnp.minimum(places, n - 1)])
        return total + jnp.sum(each * (places < n)), None

    return jax.lax.scan(body, jnp.zeros((), hidden.dtype), jnp.arange(chunks) * rows)[0] / n


@passes
def einsum_and_one_hot(hidden, vocabulary, labels, chunks):
    @jax.remat
    def chunk_loss(hidden, labels):
        likely = jax.nn.log_softmax(jnp.einsum("nd,vd->nv", hidden, vocabulary))
        return -jnp.sum(likely * jax.nn.one_hot(labels, len(vocabulary), dtype=hidden.dtype))

    # A label of no word has no one in its row.
    labels = cut(labels + 1, chunks) - 1
    total = jax.lax.map(lambda chunk: chunk_loss(*chunk), (cut(hidden, chunks), labels))
    return jnp.sum(total) / len(hidden)


@passes
def by_hand(hidden, vocabulary, labels, chunks):
    n = len(hidden)

    def chunk_loss(hidden, vocabulary, labels, counts):
        return jnp.sum(losses(hidden, vocabulary, labels) * counts)

    @jax.custom_vjp
    def loss(hidden, vocabulary):
        each = cut(hidden, chunks), cut(labels, chunks), cut(jnp.ones(n, hidden.dtype), chunks)
        return jnp.sum(jax.lax.map(lambda own: chunk_loss(own[0], vocabulary, *own[1:]), each)) / n

    def backward(kept, ct):
        hidden, vocabulary = kept

        def body(total, own):
            rows, *others = own
            _, pullback = jax.vjp(lambda rows, vocabulary: chunk_loss(rows, vocabulary, *others), rows, vocabulary)
            of_rows, of_vocabulary = pullback(ct / n)
            return total + of_vocabulary, of_rows

        each = cut(hidden, chunks), cut(labels, chunks), cut(jnp.ones(n, hidden.dtype), chunks)
        of_vocabulary, of_hidden = jax.lax.scan(body, jnp.zeros_like(vocabulary), each)
        return of_hidden.reshape(-1, hidden.shape[1])[:n], of_vocabulary

    loss.defvjp(lambda *arguments: (loss(*arguments), arguments), backward)
    return loss(hidden, vocabulary)


@passes
def linen_modules(hidden, vocabulary, labels, chunks):
    class Head(nn.Module):
        @nn.compact
        def __call__(self, total, chunk):
            words = self.param("words", lambda key: vocabulary)
            rows, labels, counts = chunk
            return total + jnp.sum(losses(rows, words, labels) * counts), None

    head = nn.scan(nn.remat(Head, prevent_cse=False), variable_broadcast="params", split_rngs={"params": False})()
    each = cut(hidden, chunks), cut(labels, chunks), cut(jnp.ones(len(hidden), hidden.dtype), chunks)
    total = head.apply({"params": {"words": vocabulary}}, jnp.zeros((), hidden.dtype), each)[0]
    return total / len(hidden)


@passes
def equinox_modules(hidden, vocabulary, labels, chunks):
    class Head(eqx.Module):
        words: jax.Array

        def __call__(self, rows, labels, counts):
            return jnp.sum(losses(rows, self.words, labels) * counts)

    head = Head(vocabulary)
    each = cut(hidden, chunks), cut(labels, chunks), cut(jnp.ones(len(hidden), hidden.dtype), chunks)
    total = jax.lax.scan(
        lambda total, own: (total + eqx.filter_checkpoint(head)(*own), None), jnp.zeros((), hidden.dtype), each
    )[0]
    return total / len(hidden)


@passes
def a_weight_for_each_row(hidden, vocabulary, labels, chunks):
    """It makes more arrays that have a number for each row: where a chunk is one row, many of them are much."""
    rows = -(-len(hidden) // chunks)
    weights = jnp.ones(len(hidden), hidden.dtype)
    each = [jnp.pad(a, [(0, rows * chunks - len(a)), *[(0, 0)] * (a.ndim - 1)]) for a in (hidden, labels, weights)]

    @jax.checkpoint
    def part(hidden, labels, weights):
        return -jnp.sum(weights * jax.nn.log_softmax(hidden @ vocabulary.T)[jnp.arange(rows), labels])

    def turn(total, number):
        return total + part(*(jax.lax.dynamic_slice_in_dim(a, number * rows, rows) for a in each)), None

    return jax.lax.scan(turn, jnp.zeros((), hidden.dtype), jnp.arange(chunks))[0] / len(hidden)

"""What an answer is asked."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.spec import Question
from rematscope import recompute_graph

parameters = ("block", "budget_bytes")
ranges: dict = {}
signature = "best_policy(block, budget_bytes)"
returns = "a list of names"


def cases(rng):
    """Blocks that no page shows, at widths that grow and shrink together; so do the bytes, and what is best stays.

    In each but the last, every usual way to choose is led to a worse choice, or one that has an idle name.
    """
    unit = int(rng.integers(2, 5))

    def block(f, rows, *shapes):
        shapes = ((rows,), *shapes)
        (tokens,), *weights = [tuple(unit * n for n in shape) for shape in shapes]
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((tokens, weights[0][0]), *weights)]
        graph = recompute_graph(f, *arrays)
        return graph, graph.evaluate(graph.names)[0] - graph.least_bytes

    stream, most = block(_stream, 7, (15, 15), (15, 15), (15, 14), (14, 15), (15, 18))
    mixed, more = block(_mixed, 10, (6, 4), (6, 4), (6, 8), (8, 6), (6, 18), (6, 18), (18, 6))
    return (
        Question("two layers in a stream", (stream, stream.least_bytes + most * 74 // 100)),
        Question("attention, then a gated layer", (mixed, mixed.least_bytes + more * 38 // 100)),
        Question("room for every name", (mixed, mixed.least_bytes + more)),
        Question("no room", (stream, stream.least_bytes)),
    )


def _stream(x, a, b, c, d, e):
    up = checkpoint_name(x @ a, "up 1")
    out = checkpoint_name(jnp.sin(up) @ b, "out 1")
    stream = checkpoint_name(x + out, "stream 1")
    up = checkpoint_name(jnp.sin(stream) @ c, "up 2")
    out = checkpoint_name(jnp.sin(up) @ d, "out 2")
    stream = checkpoint_name(stream + out, "stream 2")
    return jnp.sin(jnp.sin(stream) @ e)


def _mixed(x, wq, wk, wv, wo, wg, wu, wd):
    q, k, v = (checkpoint_name(x @ w, n) for w, n in ((wq, "query"), (wk, "key"), (wv, "value")))
    logits = checkpoint_name(q @ k.T, "logits")
    weights = checkpoint_name(jax.nn.softmax(logits), "weights")
    context = checkpoint_name(weights @ v, "context")
    y = x + checkpoint_name(context @ wo, "out")
    norm = checkpoint_name(jnp.tanh(y), "norm")
    gate, up = checkpoint_name(norm @ wg, "gate"), checkpoint_name(norm @ wu, "up")
    hidden = checkpoint_name(jax.nn.silu(gate) * up, "hidden")
    return y + checkpoint_name(hidden @ wd, "down")


shown = None

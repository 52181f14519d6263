"""Run `report` on a training step that does not fit on this GPU, and then run the changes that it lists.

    python benchmarks/gpu_report.py [BATCH SIZE] [--save report.html]

The step is a GPT of the size of GPT-2 small in Flax linen (12 layers, width 768, 1,024 tokens) with unfused attention,
bfloat16 matmuls and AdamW. The capacity is the memory that JAX gives to arrays (`bytes_limit`). The script prints the
report, compiles several changes and runs them on the GPU. Their peak is `peak_bytes_in_use`, which never decreases: the
changes run in the order of their compiled peaks, so that each row shows its own. XLA's GPU compiler recomputes values
by itself in programs that do not fit, and its log says so. Without a GPU, the script says so and exits with status 1.
"""

import argparse
import functools
import sys
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

import rematscope
from rematscope.seconds.devices import DEVICES

WORDS, WIDTH, LAYERS, HEADS, TOKENS = 50304, 768, 12, 12, 1024
RUNS = 5
OPTIMIZER = optax.adamw(1e-3)


class Block(nn.Module):
    heads: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        dense = functools.partial(nn.Dense, dtype=self.dtype)
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(self.heads, dtype=self.dtype)(nn.LayerNorm()(x), mask=mask)
        return x + dense(x.shape[-1])(nn.gelu(dense(4 * x.shape[-1])(nn.LayerNorm()(x))))


class GPT(nn.Module):
    words: int
    width: int
    layers: int
    heads: int
    dtype: jnp.dtype = jnp.bfloat16

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.words, self.width, dtype=self.dtype)
        positions = self.param("positions", nn.initializers.normal(0.02), (tokens.shape[1], self.width))
        x = embed(tokens) + positions.astype(self.dtype)
        for _ in range(self.layers):
            x = Block(self.heads, self.dtype)(x)
        return embed.attend(nn.LayerNorm()(x)).astype(jnp.float32)


@jax.jit
def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["tokens"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

    loss, gradient = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=gradient), loss


def new_state(model, length, key):
    params = model.init(key, jnp.zeros((1, length), jnp.int32))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=OPTIMIZER)


def new_batch(size, length, words):
    tokens = jax.random.randint(jax.random.key(0), (size, length + 1), 0, words)
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}


def peak_in_use(device):
    return (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30


def timed(compiled, state, batch, donated):
    """Return the fastest seconds of a step, after one to warm up."""
    seconds = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        after, _ = jax.block_until_ready(compiled(state, batch))
        seconds = min(seconds, time.perf_counter() - start)
        state = after if donated else state
        del after
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batch", type=int, nargs="?", default=128)
    parser.add_argument("--save", help="write the report's page to this file")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU, to test this script")
    asked = parser.parse_args()
    (device, *_) = jax.devices()
    if device.platform != "gpu" and not asked.tiny:
        sys.exit("JAX finds no GPU. Install jax[cuda13] on a machine with one, and run this script there.")
    words, width, layers, heads, length = (256, 48, 4, 4, 64) if asked.tiny else (WORDS, WIDTH, LAYERS, HEADS, TOKENS)
    kind = device.device_kind.lower()
    name = "h100" if asked.tiny else next(key for key in sorted(DEVICES, key=len, reverse=True) if key in kind)
    limit = "12 MiB" if asked.tiny else device.memory_stats()["bytes_limit"]
    model = GPT(words, width, layers, heads)
    shapes = jax.eval_shape(functools.partial(new_state, model, length), jax.random.key(1))
    batch_shapes = jax.eval_shape(functools.partial(new_batch, asked.batch, length, words))
    print(f"{device.device_kind}, JAX {jax.__version__}, capacity {limit}", flush=True)

    start, cpu = time.perf_counter(), time.process_time()
    report = rematscope.report(train_step, shapes, batch_shapes, memory=limit, device=name)
    took = f"{time.perf_counter() - start:.0f} s, {time.process_time() - cpu:.0f} s of processor time"
    print(report, f"\nreport took {took}", flush=True)
    if asked.save:
        report.save(asked.save)

    variants = {
        "full": {"checkpoint": "layers"},
        "dots_with_no_batch_dims": {
            "checkpoint": "layers",
            "policy": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
        },
        "full, head in 16 chunks": {"checkpoint": "layers", "head_chunks": 16},
        "8 microbatches": {"microbatches": 8, "in_axes": (None, 0)},
    }
    rows = []
    for row, changes in {**variants, "as written": None}.items():
        step = train_step if changes is None else rematscope.rewrite(train_step, **changes, donate_argnums=0)
        trace = rematscope.trace(step, shapes, batch_shapes)
        estimate = rematscope.estimate_time(trace, name).step
        start = time.perf_counter()
        try:
            compiled = step.lower(shapes, batch_shapes).compile()
        except Exception as error:
            print(f"{row}: {str(error).splitlines()[0][:300]}", flush=True)
            continue
        peak = compiled.memory_analysis().peak_memory_in_bytes / 2**30
        rows.append((peak, row, compiled, estimate, changes))
        print(f"{row}: compiled in {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{'changes':26} {'compiled':>10} {'in use':>10} {'estimate':>10} {'measured':>10}")
    for peak, row, compiled, estimate, changes in sorted(rows, key=lambda each: each[0]):
        state = jax.jit(functools.partial(new_state, model, length))(jax.random.key(1))
        batch = new_batch(asked.batch, length, words)
        try:
            result = f"{1e3 * timed(compiled, state, batch, changes is not None):7.1f} ms"
        except jax.errors.JaxRuntimeError as error:
            result = str(error).splitlines()[0]
        print(f"{row:26} {peak:6.2f} GiB {peak_in_use(device):6.2f} GiB {1e3 * estimate:7.1f} ms {result}", flush=True)
        del state, batch


if __name__ == "__main__":
    main()

"""A training step of a GPT in Flax linen, with tied embeddings and AdamW, for the example in `docs/report.md`."""

import flax.linen as nn
import jax
import optax
from flax.training.train_state import TrainState

WORDS, WIDTH, LAYERS, HEADS, TOKENS, BATCH = 256, 48, 4, 4, 96, 16


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        x = x + nn.MultiHeadDotProductAttention(HEADS)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))


class GPT(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(WORDS, WIDTH)
        x = embed(tokens) + self.param("positions", nn.initializers.normal(0.02), (TOKENS, WIDTH))
        for _ in range(LAYERS):
            x = Block()(x, nn.make_causal_mask(tokens))
        return embed.attend(nn.LayerNorm()(x))


@jax.jit
def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["tokens"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

    loss, gradient = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=gradient), loss


def example_arguments():
    model, tokens = GPT(), jax.random.randint(jax.random.key(0), (BATCH, TOKENS + 1), 0, WORDS)
    params = jax.jit(model.init)(jax.random.key(1), tokens[:, :-1])["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))
    return state, {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}

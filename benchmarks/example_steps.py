"""Training steps in the style of the examples of Flax, Haiku, Equinox and Hugging Face; see `hard_steps`.

They hold what the other steps do not: dropout with a key in the state, noise, masked means, gradient clipping, weight
decay masks, averaged weights, several mini-steps, a graph without a batch, metrics next to the loss.
"""

from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx, struct
from flax.training import train_state
from hard_steps import Subject, hard, ids, normal, weights
from jax import lax


class TransformerLayer(linen.Module):
    heads: int = 4
    dropout: float = 0.1
    decode: bool = False

    @linen.compact
    def __call__(self, x, mask=None, memory=None, train=True):
        y = linen.LayerNorm()(x)
        y = linen.MultiHeadDotProductAttention(self.heads, dropout_rate=self.dropout, deterministic=not train)(
            y, mask=mask
        )
        x = x + linen.Dropout(self.dropout, deterministic=not train)(y)
        if memory is not None:
            y = linen.LayerNorm()(x)
            x = x + linen.MultiHeadDotProductAttention(self.heads, deterministic=True)(y, memory)
        y = linen.LayerNorm()(x)
        y = linen.Dense(x.shape[-1])(linen.gelu(linen.Dense(4 * x.shape[-1])(y)))
        return x + linen.Dropout(self.dropout, deterministic=not train)(y)


@hard
def lm1b_in_flax():
    """Flax's lm1b: a causal model, dropout by the step's number, a loss over the tokens that are no padding."""

    class Model(linen.Module):
        @linen.compact
        def __call__(self, inputs):
            x = linen.Embed(512, 64)(inputs) + self.param("positions", linen.initializers.normal(0.02), (64, 64))
            mask = linen.make_causal_mask(inputs)
            for _ in range(4):
                x = TransformerLayer()(x, mask)
            return linen.Dense(512)(linen.LayerNorm()(x))

    model = Model()
    inputs = ids(0, (16, 64), 512)
    params = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, inputs)["params"]
    tx = optax.adamw(1e-3, b1=0.9, b2=0.98, eps=1.0, weight_decay=1e-1)
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    def compute_metrics(logits, labels, weights):
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels) * weights
        accuracy = jnp.equal(jnp.argmax(logits, axis=-1), labels) * weights
        return {"loss": loss.sum(), "accuracy": accuracy.sum(), "denominator": weights.sum()}

    @jax.jit
    def train_step(state, batch, dropout_rng=None):
        weights = jnp.where(batch["inputs"] > 0, 1, 0).astype(jnp.float32)
        dropout_rng = jax.random.fold_in(dropout_rng, state.step)

        def loss_fn(params):
            logits = state.apply_fn({"params": params}, batch["inputs"], rngs={"dropout": dropout_rng})
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
            return (loss * weights).sum() / weights.sum(), logits

        (_, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads), compute_metrics(logits, batch["targets"], weights)

    batch = {"inputs": inputs, "targets": ids(1, (16, 64), 512)}
    return Subject(train_step, (state, batch, jax.random.key(2)), True)


@hard
def bert_masked_words():
    """Hugging Face's run_mlm_flax: the dropout key in the state, masked labels, clipping, a weight decay mask."""

    class Bert(linen.Module):
        @linen.compact
        def __call__(self, input_ids, attention_mask, token_type_ids, deterministic=True):
            embed = linen.Embed(1024, 64)
            x = embed(input_ids) + linen.Embed(64, 64)(jnp.arange(input_ids.shape[1])[None])
            x = linen.LayerNorm()(x + linen.Embed(2, 64)(token_type_ids))
            x = linen.Dropout(0.1, deterministic=deterministic)(x)
            mask = attention_mask[:, None, None, :]
            for _ in range(4):
                x = TransformerLayer()(x, mask, train=not deterministic)
            x = linen.LayerNorm()(linen.gelu(linen.Dense(64)(x)))
            return embed.attend(x) + self.param("bias", linen.initializers.zeros, (1024,))

    class TrainState(train_state.TrainState):
        dropout_rng: jax.Array

    model = Bert()
    batch = {
        "input_ids": ids(0, (16, 64), 1024),
        "attention_mask": jnp.ones((16, 64), jnp.int32),
        "token_type_ids": jnp.zeros((16, 64), jnp.int32),
        "labels": jnp.where(ids(3, (16, 64), 7) == 0, ids(1, (16, 64), 1024), -100),
    }
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    params = model.init(jax.random.key(0), **inputs)["params"]

    def decay_mask_fn(params):
        return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key not in ("bias", "scale"), params)

    schedule = optax.linear_schedule(1e-3, 0.0, 1000)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, eps=1.0, weight_decay=0.01, mask=decay_mask_fn)
    )
    state = TrainState.create(apply_fn=model.apply, params=params, tx=tx, dropout_rng=jax.random.PRNGKey(1))

    @jax.jit
    def train_step(state, batch):
        batch = dict(batch)
        dropout_rng, new_dropout_rng = jax.random.split(state.dropout_rng)
        labels = batch.pop("labels")

        def loss_fn(params):
            logits = state.apply_fn({"params": params}, **batch, deterministic=False, rngs={"dropout": dropout_rng})
            label_mask = jnp.where(labels > 0, 1.0, 0.0)
            loss = optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, logits.shape[-1])) * label_mask
            return loss.sum(), label_mask.sum()

        (loss, num_labels), grad = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        loss, grad = loss / num_labels, jax.tree.map(lambda x: x / num_labels, grad)
        new_state = state.apply_gradients(grads=grad, dropout_rng=new_dropout_rng)
        return new_state, {"loss": loss, "learning_rate": schedule(state.step)}

    return Subject(train_step, (state, batch), True)


@hard
def t5_in_bfloat16():
    """An encoder and a decoder in bfloat16 with weights in float32, label smoothing, Adafactor."""

    class T5(linen.Module):
        @linen.compact
        def __call__(self, source, target):
            embed = linen.Embed(512, 64, dtype=jnp.bfloat16)
            memory = embed(source)
            for i in range(3):
                memory = TransformerLayer(dropout=0.0, name=f"encoder_{i}")(memory, source[:, None, None, :] > 0)
            x = embed(jnp.pad(target, ((0, 0), (1, 0)))[:, :-1])
            for i in range(3):
                x = TransformerLayer(dropout=0.0, name=f"decoder_{i}")(x, linen.make_causal_mask(target), memory)
            return embed.attend(linen.LayerNorm(dtype=jnp.bfloat16)(x))

    model = T5()
    source, target = ids(0, (16, 48), 512), ids(1, (16, 48), 512)
    params = model.init(jax.random.key(0), source, target)
    tx = optax.adafactor(1e-3, eps=1e-2)

    @jax.jit
    def train_step(params, opt_state, source, target):
        def loss_fn(params):
            logits = model.apply(params, source, target).astype(jnp.float32)
            labels = optax.smooth_labels(jax.nn.one_hot(target, 512), 0.1)
            log_z = jax.nn.logsumexp(logits, axis=-1)
            return (optax.softmax_cross_entropy(logits, labels) + 1e-4 * log_z**2).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return Subject(train_step, (params, tx.init(params), source, target))


@hard
def diffusion_with_averaged_weights():
    """NNX: a U-Net that predicts the noise, with noise and times drawn in the loss, and averaged weights."""

    class Block(nnx.Module):
        def __init__(self, before, after, rngs):
            self.norm = nnx.GroupNorm(before, num_groups=8, rngs=rngs)
            self.first = nnx.Conv(before, after, (3, 3), rngs=rngs)
            self.second = nnx.Conv(after, after, (3, 3), rngs=rngs)
            self.time = nnx.Linear(32, after, rngs=rngs)
            self.skip = nnx.Conv(before, after, (1, 1), rngs=rngs)

        def __call__(self, x, t):
            y = self.first(nnx.silu(self.norm(x))) + self.time(t)[:, None, None, :]
            return self.skip(x) + self.second(nnx.silu(y))

    class UNet(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
            self.down = nnx.List([Block(16, 32, rngs), Block(32, 64, rngs)])
            self.middle = Block(64, 64, rngs)
            self.up = nnx.List([Block(128, 32, rngs), Block(64, 16, rngs)])
            self.last = nnx.Conv(16, 3, (3, 3), rngs=rngs)

        def __call__(self, x, t):
            frequencies = jnp.exp(jnp.linspace(0.0, 5.0, 16))
            t = jnp.concatenate([jnp.sin(t[:, None] * frequencies), jnp.cos(t[:, None] * frequencies)], -1)
            x, skips = self.first(x), []
            for block in self.down:
                x = block(x, t)
                skips.append(x)
                x = nnx.avg_pool(x, (2, 2), (2, 2))
            x = self.middle(x, t)
            for block in self.up:
                x = jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest")
                x = block(jnp.concatenate([x, skips.pop()], -1), t)
            return self.last(x)

    graphdef, params = nnx.split(UNet(nnx.Rngs(0)))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-4, eps=1.0))
    state = {"params": params, "ema": params, "opt": tx.init(params), "key": jax.random.key(0)}

    @jax.jit
    def train_step(state, images):
        key, noise_key, time_key = jax.random.split(state["key"], 3)

        def loss_fn(params):
            t = jax.random.uniform(time_key, (images.shape[0],))
            noise = jax.random.normal(noise_key, images.shape)
            signal, amount = jnp.cos(t * jnp.pi / 2), jnp.sin(t * jnp.pi / 2)
            noisy = signal[:, None, None, None] * images + amount[:, None, None, None] * noise
            return jnp.mean((nnx.merge(graphdef, params)(noisy, t) - noise) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(state["params"])
        updates, opt = tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        ema = optax.incremental_update(params, state["ema"], 0.001)
        return {"params": params, "ema": ema, "opt": opt, "key": key}, {"loss": loss}

    return Subject(train_step, (state, normal(1, 16, 32, 32, 3)), True)


@hard
def resnet_in_haiku():
    """Haiku's ImageNet example: batch normalization in a state, L2 of the weights in the loss, momentum."""

    class TrainState(NamedTuple):
        params: Any
        state: Any
        opt_state: Any

    def forward_fn(images, is_training):
        net = hk.nets.ResNet([1, 1, 1, 1], 10, channels_per_group=(32, 32, 64, 64), bottleneck=False)
        return net(images, is_training=is_training)

    forward = hk.transform_with_state(forward_fn)
    images = normal(0, 16, 64, 64, 3)
    params, state = forward.init(jax.random.key(0), images, is_training=True)
    tx = optax.chain(optax.trace(0.9, nesterov=True), optax.scale(-0.1))

    def l2_loss(params):
        return 0.5 * sum(jnp.sum(jnp.square(p)) for p in params)

    def loss_fn(params, state, batch):
        logits, state = forward.apply(params, state, None, batch["images"], is_training=True)
        labels = jax.nn.one_hot(batch["labels"], 10)
        penalty = l2_loss([p for module, _, p in hk.data_structures.traverse(params) if "batchnorm" not in module])
        loss = optax.softmax_cross_entropy(logits=logits, labels=labels).mean() + 1e-4 * penalty
        return loss, (loss, logits, state)

    @jax.jit
    def train_step(train_state, batch):
        params, state, opt_state = train_state
        grads, (loss, logits, new_state) = jax.grad(loss_fn, has_aux=True)(params, state, batch)
        updates, new_opt_state = tx.update(grads, opt_state)
        top_1 = jnp.mean(jnp.argmax(logits, -1) == batch["labels"])
        scalars = {"train_loss": loss, "train_top_1_acc": top_1}
        return TrainState(optax.apply_updates(params, updates), new_state, new_opt_state), scalars

    batch = {"images": images, "labels": ids(1, (16,), 10)}
    return Subject(train_step, (TrainState(params, state, tx.init(params)), batch))


@hard
def gpt_in_equinox():
    """Equinox: a GPT whose examples are mapped, with a key per example, bfloat16 and a master copy in float32."""

    class Block(eqx.Module):
        norm1: eqx.nn.LayerNorm
        norm2: eqx.nn.LayerNorm
        attention: eqx.nn.MultiheadAttention
        mlp: eqx.nn.MLP
        dropout: eqx.nn.Dropout

        def __init__(self, key):
            one, other = jax.random.split(key)
            self.norm1, self.norm2 = eqx.nn.LayerNorm(64), eqx.nn.LayerNorm(64)
            self.attention = eqx.nn.MultiheadAttention(4, 64, dropout_p=0.1, key=one)
            self.mlp = eqx.nn.MLP(64, 64, 256, 1, jax.nn.gelu, key=other)
            self.dropout = eqx.nn.Dropout(0.1)

        def __call__(self, x, key):
            one, two, three = jax.random.split(key, 3)
            y = jax.vmap(self.norm1)(x)
            mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
            x = x + self.dropout(self.attention(y, y, y, mask, key=one), key=two)
            return x + self.dropout(jax.vmap(self.mlp)(jax.vmap(self.norm2)(x)), key=three)

    class GPT(eqx.Module):
        embed: eqx.nn.Embedding
        blocks: list[Block]
        head: eqx.nn.Linear

        def __init__(self, key):
            one, two, *keys = jax.random.split(key, 6)
            self.embed, self.blocks = eqx.nn.Embedding(512, 64, key=one), [Block(k) for k in keys]
            self.head = eqx.nn.Linear(64, 512, use_bias=False, key=two)

        def __call__(self, tokens, key):
            x = jax.vmap(self.embed)(tokens)
            for block, own in zip(self.blocks, jax.random.split(key, len(self.blocks)), strict=True):
                x = block(x, own)
            return jax.vmap(self.head)(x)

    model = GPT(jax.random.key(0))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1.0))

    def compute_loss(model, inputs, key):
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, model)
        keys = jax.random.split(key, inputs.shape[0])
        logits = jax.vmap(half)(inputs[:, :-1], keys).astype(jnp.float32)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, inputs[:, 1:]))

    @eqx.filter_jit
    def make_step(model, inputs, opt_state, key):
        key, new_key = jax.random.split(key)
        loss, grads = eqx.filter_value_and_grad(compute_loss)(model, inputs, key)
        updates, opt_state = tx.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
        return loss, eqx.apply_updates(model, updates), opt_state, new_key

    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    return Subject(make_step, (model, ids(1, (16, 65), 512), opt_state, jax.random.key(2)), True)


@hard
def scanned_with_mini_steps():
    """Plain JAX: scanned layers with a checkpoint, one long sequence with many words, optax.MultiSteps."""
    width, layers, words = 64, 6, 4096

    def layer_weights(key):
        one, two, three, four = jax.random.split(key, 4)
        make = lambda key, *shape: jax.random.normal(key, shape) * shape[0] ** -0.5  # noqa: E731
        return {
            "qkv": make(one, width, 3 * width), "out": make(two, width, width),
            "up": make(three, width, 4 * width), "down": make(four, 4 * width, width), "norm": jnp.ones((2, width)),
        }  # fmt: skip

    params = {
        "embed": weights(0, words, width),
        "layers": jax.vmap(layer_weights)(jax.random.split(jax.random.key(1), layers)),
    }
    tx = optax.MultiSteps(optax.adamw(1e-3, eps=1.0), every_k_schedule=4)

    def rms(x, scale):
        return scale * x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)

    @jax.checkpoint
    def block(x, p):
        batch, time, _ = x.shape
        q, k, v = (t.reshape(batch, time, 4, -1) for t in jnp.split(rms(x, p["norm"][0]) @ p["qkv"], 3, -1))
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ p["out"]
        x = x + jax.nn.silu(rms(x, p["norm"][1]) @ p["up"]) @ p["down"]
        return x, None

    def loss_fn(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        x, _ = lax.scan(block, x, params["layers"])
        logits = rms(x, 1.0) @ params["embed"].T
        log_p = jax.nn.log_softmax(logits, -1)
        return -jnp.mean(jnp.take_along_axis(log_p, tokens[:, 1:, None], -1))

    @jax.jit
    def train_step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return Subject(train_step, (params, tx.init(params), ids(2, (1, 513), words)))


@hard
def nnx_with_dropout_and_metrics():
    """NNX's MNIST example: convolutions, dropout with its own keys, metrics, all changed in place."""

    class CNN(nnx.Module):
        def __init__(self, rngs):
            self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(32, rngs=rngs)
            self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
            self.dropout1 = nnx.Dropout(0.1, rngs=rngs)
            self.linear1 = nnx.Linear(3136, 64, rngs=rngs)
            self.dropout2 = nnx.Dropout(0.3, rngs=rngs)
            self.linear2 = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x):
            x = nnx.avg_pool(nnx.relu(self.norm(self.dropout1(self.conv1(x)))), (2, 2), (2, 2))
            x = nnx.avg_pool(nnx.relu(self.conv2(x)), (2, 2), (2, 2))
            x = nnx.relu(self.dropout2(self.linear1(x.reshape(x.shape[0], -1))))
            return self.linear2(x)

    model = CNN(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3, 0.9, eps=1.0), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))

    def loss_fn(model, batch):
        logits = model(batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean(), logits

    @nnx.jit
    def train_step(model, optimizer, metrics, batch):
        (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, batch)
        metrics.update(loss=loss, logits=logits, labels=batch["label"])
        optimizer.update(model, grads)

    batch = {"image": normal(1, 32, 28, 28, 1), "label": ids(2, (32,), 10)}
    return Subject(train_step, (model, optimizer, metrics, batch), True)


@hard
def vqvae_in_haiku():
    """Haiku's VQ-VAE: a code book with averages in its state, gradients straight through."""

    def forward_fn(images):
        x = jax.nn.relu(hk.Conv2D(32, 4, 2)(images))
        x = jax.nn.relu(hk.Conv2D(64, 4, 2)(x))
        for _ in range(2):
            x = x + hk.Conv2D(64, 1)(jax.nn.relu(hk.Conv2D(32, 3)(jax.nn.relu(x))))
        quantizer = hk.nets.VectorQuantizerEMA(embedding_dim=32, num_embeddings=128, commitment_cost=0.25, decay=0.99)
        found = quantizer(hk.Conv2D(32, 1)(x), is_training=True)
        x = hk.Conv2D(64, 3)(found["quantize"])
        for _ in range(2):
            x = x + hk.Conv2D(64, 1)(jax.nn.relu(hk.Conv2D(32, 3)(jax.nn.relu(x))))
        x = hk.Conv2DTranspose(3, 4, 2)(jax.nn.relu(hk.Conv2DTranspose(32, 4, 2)(x)))
        error = jnp.mean((x - images) ** 2) / 0.06
        return error + found["loss"], {"reconstruction": error, "perplexity": found["perplexity"]}

    forward = hk.transform_with_state(forward_fn)
    images = normal(0, 32, 32, 32, 3)
    params, state = forward.init(jax.random.key(0), images)
    tx = optax.adam(3e-4, eps=1.0)

    @jax.jit
    def train_step(params, state, opt_state, images):
        def adapt_forward(params, state, images):
            (loss, aux), state = forward.apply(params, state, None, images)
            return loss, (aux, state)

        grads, (aux, state) = jax.grad(adapt_forward, has_aux=True)(params, state, images)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), state, opt_state, aux

    return Subject(train_step, (params, state, tx.init(params), images))


@hard
def proximal_policy():
    """PPO: advantages normalized over the minibatch, a clipped loss, an entropy bonus, the gradient's norm."""

    class ActorCritic(linen.Module):
        @linen.compact
        def __call__(self, x):
            for features, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
                x = linen.relu(linen.Conv(features, (size, size), (stride, stride), padding="VALID")(x))
            x = linen.relu(linen.Dense(128)(x.reshape(x.shape[0], -1)))
            return linen.log_softmax(linen.Dense(6)(x)), linen.Dense(1)(x)[:, 0]

    class Minibatch(struct.PyTreeNode):
        states: jax.Array
        actions: jax.Array
        old_log_probs: jax.Array
        returns: jax.Array
        advantages: jax.Array

    model = ActorCritic()
    states = normal(0, 64, 84, 84, 4)
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4, eps=1.0))
    state = train_state.TrainState.create(apply_fn=model.apply, params=model.init(jax.random.key(0), states), tx=tx)

    def loss_fn(params, apply_fn, batch):
        log_probs, values = apply_fn(params, batch.states)
        advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
        value_loss = jnp.mean(jnp.square(batch.returns - values))
        entropy = jnp.sum(-jnp.exp(log_probs) * log_probs, axis=1).mean()
        chosen = jax.vmap(lambda lp, a: lp[a])(log_probs, batch.actions)
        ratios = jnp.exp(chosen - batch.old_log_probs)
        clipped = advantages * lax.clamp(0.8, ratios, 1.2)
        policy_loss = -jnp.mean(jnp.minimum(ratios * advantages, clipped))
        return policy_loss + 0.5 * value_loss - 0.01 * entropy

    @jax.jit
    def train_step(state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(state.params, state.apply_fn, batch)
        return state.apply_gradients(grads=grads), {"loss": loss, "norm": optax.global_norm(grads)}

    batch = Minibatch(states, ids(1, (64,), 6), normal(2, 64), normal(3, 64), normal(4, 64))
    return Subject(train_step, (state, batch))


@hard
def graph_network():
    """Messages along the edges of one graph, summed per node: there is no batch."""
    nodes, edges, width = 512, 4096, 32

    def mlp_weights(seed, before):
        return {"w1": weights(seed, before, 64), "w2": weights(seed + 1, 64, width), "b": jnp.zeros(width)}

    def mlp(p, x):
        y = jax.nn.relu(x @ p["w1"]) @ p["w2"] + p["b"]
        return (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)

    layers = [{"edge": mlp_weights(10 * i, 3 * width), "node": mlp_weights(10 * i + 5, 2 * width)} for i in range(6)]
    params = {
        "in": weights(100, 8, width),
        "edge_in": weights(101, 4, width),
        "layers": layers,
        "out": weights(102, width, 2),
    }
    tx = optax.adam(1e-3, eps=1.0)

    def loss_fn(params, graph):
        h, e = graph["nodes"] @ params["in"], graph["edges"] @ params["edge_in"]
        for layer in params["layers"]:
            e = e + mlp(layer["edge"], jnp.concatenate([e, h[graph["senders"]], h[graph["receivers"]]], -1))
            total = jax.ops.segment_sum(e, graph["receivers"], num_segments=nodes)
            h = h + mlp(layer["node"], jnp.concatenate([h, total], -1))
        return jnp.mean((h @ params["out"] - graph["targets"]) ** 2)

    @jax.jit
    def update(params, opt_state, graph):
        loss, grads = jax.value_and_grad(loss_fn)(params, graph)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    graph = {
        "nodes": normal(0, nodes, 8), "edges": normal(1, edges, 4), "targets": normal(4, nodes, 2),
        "senders": ids(2, (edges,), nodes), "receivers": ids(3, (edges,), nodes),
    }  # fmt: skip
    return Subject(update, (params, tx.init(params), graph))


@hard
def vae_in_flax():
    """Flax's VAE with convolutions: noise from a key among the arguments, a sum over pixels."""

    class VAE(linen.Module):
        @linen.compact
        def __call__(self, x, z_rng):
            y = x
            for features in (32, 64):
                y = linen.relu(linen.Conv(features, (3, 3), (2, 2))(y))
            y = y.reshape(y.shape[0], -1)
            mean, logvar = linen.Dense(20)(y), linen.Dense(20)(y)
            z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(z_rng, logvar.shape)
            y = linen.relu(linen.Dense(7 * 7 * 64)(z)).reshape(-1, 7, 7, 64)
            for features in (64, 32):
                y = linen.relu(linen.ConvTranspose(features, (3, 3), (2, 2))(y))
            return linen.Conv(1, (3, 3))(y), mean, logvar

    model = VAE()
    images = jax.nn.sigmoid(normal(0, 64, 28, 28, 1))
    state = train_state.TrainState.create(
        apply_fn=model.apply,
        params=model.init(jax.random.key(0), images, jax.random.key(1))["params"],
        tx=optax.adam(1e-3, eps=1.0),
    )

    @jax.vmap
    def kl_divergence(mean, logvar):
        return -0.5 * jnp.sum(1 + logvar - jnp.square(mean) - jnp.exp(logvar))

    @jax.vmap
    def binary_cross_entropy_with_logits(logits, labels):
        logits = linen.log_sigmoid(logits)
        return -jnp.sum(labels * logits + (1.0 - labels) * jnp.log(-jnp.expm1(logits)))

    @jax.jit
    def train_step(state, batch, z_rng):
        def loss_fn(params):
            recon, mean, logvar = model.apply({"params": params}, batch, z_rng)
            return binary_cross_entropy_with_logits(recon, batch).mean() + kl_divergence(mean, logvar).mean()

        return state.apply_gradients(grads=jax.grad(loss_fn)(state.params))

    return Subject(train_step, (state, images, jax.random.key(2)), True)

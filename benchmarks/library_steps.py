"""Training steps of libraries for `hard_steps.py`: experts, LoRA, a loss that defines its gradient, a neural ODE."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from hard_steps import Subject, cross_entropy, hard, ids, norm, normal, weights
from jax import lax

WIDTH, WORDS = 64, 128


@hard
def nnx_mixture_of_experts():
    """Flax nnx: dense experts with top-2 gates; the loss that keeps the gates small is a mean over the tokens."""

    class Experts(nnx.Module):
        def __init__(self, rngs):
            self.gate = nnx.Linear(WIDTH, 4, rngs=rngs)
            self.up, self.down = nnx.Param(weights(3, 4, WIDTH, 128)), nnx.Param(weights(4, 4, 128, WIDTH))
            self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)

        def __call__(self, x):
            h = self.norm(x)
            logits = self.gate(h)
            gates = jax.nn.softmax(logits)
            gates = jnp.where(gates >= lax.top_k(gates, 2)[0][..., -1:], gates, 0)
            y = jax.nn.gelu(jnp.einsum("btd,edf->btef", h, self.up[...]))
            mixed = jnp.einsum("btef,efd,bte->btd", y, self.down[...], gates)
            return x + mixed, jnp.mean(jax.nn.logsumexp(logits, -1) ** 2)

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(WORDS, WIDTH, rngs=rngs)
            self.blocks = nnx.List([Experts(rngs) for _ in range(4)])
            self.head = nnx.Linear(WIDTH, WORDS, rngs=rngs)

        def __call__(self, tokens):
            x, total = self.embed(tokens), 0.0
            for block in self.blocks:
                x, size = block(x)
                total += size
            return self.head(x), total

    @nnx.jit
    def train_step(model, optimizer, tokens):
        def loss_fn(model):
            logits, size = model(tokens[:, :-1])
            return cross_entropy(logits, tokens[:, 1:]) + 1e-3 * size

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return loss

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3, eps=1.0), wrt=nnx.Param)
    return Subject(train_step, (model, optimizer, ids(0, (16, 65), WORDS)))


class LowRank(eqx.Module):
    """A frozen matrix with a trained adapter."""

    frozen: jax.Array
    a: jax.Array
    b: jax.Array

    def __init__(self, seed, before, after):
        self.frozen, self.a = weights(seed, before, after), weights(seed + 1, before, 4)
        self.b = jnp.zeros((4, after))

    def __call__(self, x):
        return x @ lax.stop_gradient(self.frozen) + (x @ self.a) @ self.b


class AdaptedBlock(eqx.Module):
    """A transformer block for one sequence."""

    qkv: LowRank
    out: LowRank
    up: LowRank
    down: LowRank

    def __init__(self, seed):
        self.qkv, self.out = LowRank(seed, WIDTH, 3 * WIDTH), LowRank(seed + 2, WIDTH, WIDTH)
        self.up, self.down = LowRank(seed + 4, WIDTH, 4 * WIDTH), LowRank(seed + 6, 4 * WIDTH, WIDTH)

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(norm(x)), 3, -1)
        causal = jnp.tril(jnp.ones((len(x), len(x)), bool))
        x = x + self.out(jax.nn.softmax(jnp.where(causal, q @ k.T / 8, -1e9)) @ v)
        return x + self.down(jax.nn.gelu(self.up(norm(x))))


@hard
def equinox_adapters():
    """Equinox: LoRA adapters of a transformer that is mapped over the batch; frozen weights are an argument."""
    embed, blocks = weights(0, WORDS, WIDTH), [AdaptedBlock(10 * i) for i in range(5)]
    no = jax.tree.map(lambda _: False, blocks)

    def adapters(blocks):
        linears = [one for block in blocks for one in (block.qkv, block.out, block.up, block.down)]
        return [array for one in linears for array in (one.a, one.b)]

    trained, frozen = eqx.partition(blocks, eqx.tree_at(adapters, no, replace_fn=lambda _: True))
    tx = optax.adam(1e-3, eps=1.0)

    @eqx.filter_jit
    def train_step(trained, frozen, opt_state, tokens):
        def logits_of(trained, tokens):
            x = embed[tokens]
            for block in eqx.combine(trained, frozen):
                x = block(x)
            return norm(x) @ embed.T

        def loss_fn(trained):
            return cross_entropy(jax.vmap(functools.partial(logits_of, trained))(tokens[:, :-1]), tokens[:, 1:])

        loss, grads = eqx.filter_value_and_grad(loss_fn)(trained)
        updates, opt_state = tx.update(grads, opt_state)
        return eqx.apply_updates(trained, updates), opt_state, loss

    return Subject(train_step, (trained, frozen, tx.init(trained), ids(0, (16, 65), WORDS)))


@jax.custom_vjp
def token_losses(logits, targets):
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jax.nn.logsumexp(logits, -1) - picked


def token_losses_forward(logits, targets):
    return token_losses(logits, targets), (logits, targets)


def token_losses_backward(saved, cotangent):
    logits, targets = saved
    return (jax.nn.softmax(logits) - jax.nn.one_hot(targets, logits.shape[-1])) * cotangent[..., None], None


token_losses.defvjp(token_losses_forward, token_losses_backward)


@hard
def gru_with_a_defined_gradient():
    """A GRU in a scan over the first axis, which is time; the loss per token defines its own gradient."""
    shapes = {"embed": (WORDS, WIDTH), "x": (WIDTH, 3 * WIDTH), "h": (WIDTH, 3 * WIDTH), "out": (WIDTH, WORDS)}
    params = {name: weights(i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    tx = optax.adam(1e-3, eps=1.0)

    def cell(params, h, x):
        (a, b, c), (d, e, f) = (jnp.split(v, 3, -1) for v in (x @ params["x"], h @ params["h"]))
        update = jax.nn.sigmoid(a + d)
        h = (1 - update) * h + update * jnp.tanh(c + jax.nn.sigmoid(b + e) * f)
        return h, h

    def loss_fn(params, tokens, targets):
        start = jnp.zeros((tokens.shape[1], WIDTH))
        _, states = lax.scan(functools.partial(cell, params), start, params["embed"][tokens])
        return token_losses(states @ params["out"], targets).mean()

    @jax.jit
    def train_step(params, opt_state, tokens, targets):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, targets)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    tokens = ids(0, (129, 32), WORDS)
    return Subject(train_step, (params, tx.init(params), tokens[:-1], tokens[1:]))


class NeuralODE(eqx.Module):
    field: eqx.nn.MLP

    def __call__(self, times, start):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: self.field(y)),
            diffrax.Tsit5(),
            t0=times[0],
            t1=times[-1],
            dt0=times[1] - times[0],
            y0=start,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
            saveat=diffrax.SaveAt(ts=times),
            max_steps=64,
        )
        return solution.ys


@hard
def neural_ode():
    """Diffrax: each example is solved in steps of its own, in a loop with checkpoints that Equinox differentiates."""
    model = NeuralODE(eqx.nn.MLP(8, 8, 128, 2, jax.nn.softplus, key=jax.random.key(0)))
    tx = optax.adabelief(3e-3, eps=1.0)

    @eqx.filter_value_and_grad
    def loss_fn(model, times, paths):
        return jnp.mean((jax.vmap(model, in_axes=(None, 0))(times, paths[:, 0]) - paths) ** 2)

    @eqx.filter_jit
    def make_step(model, opt_state, times, paths):
        loss, grads = loss_fn(model, times, paths)
        updates, opt_state = tx.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, loss

    state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    return Subject(make_step, (model, state, jnp.linspace(0.0, 1.0, 10), normal(1, 64, 10, 8)))

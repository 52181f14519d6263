"""Batch axes of fields: a recurrent network's state, carried from call to call, in one tree with the parameters."""

import dataclasses
import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct
from normal import normal
from sampling import few

from rematscope import PlanError, report, rewrite
from rematscope.reporting.subject import Subject

TIME, BATCH, WIDTH, TOKENS = 32, 12, 16, 512
OPTIMIZER = optax.sgd(1e-2, momentum=0.9)  # Adam would amplify the rounding errors of gradients near zero


class NamedState(NamedTuple):
    params: Any
    optimizer: Any
    carry: Any


@struct.dataclass
class FlaxState:
    params: Any
    optimizer: Any
    carry: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class RegisteredState:
    params: Any
    optimizer: Any
    carry: Any


STATES = [NamedState, FlaxState, RegisteredState]


def loss(params, carry, tokens, targets):
    def cell(carry, token):
        carry = jnp.tanh(params["embedding"][token] + carry @ params["recurrent"])
        return carry, carry @ params["head"]

    carry, logits = jax.lax.scan(cell, carry, tokens)
    return -jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(targets, TOKENS)) / targets.size, carry


def step(state, tokens, targets):
    (value, carry), gradient = jax.value_and_grad(loss, has_aux=True)(state.params, state.carry, tokens, targets)
    updates, optimizer = OPTIMIZER.update(gradient, state.optimizer)
    return type(state)(optax.apply_updates(state.params, updates), optimizer, carry), value


def arguments(kind):
    *arrays, carry = normal(0, (TOKENS, WIDTH), (WIDTH, WIDTH), (WIDTH, TOKENS), (BATCH, WIDTH))
    params = {name: 0.2 * each for name, each in zip(("embedding", "recurrent", "head"), arrays, strict=True)}
    tokens = np.random.default_rng(1).integers(0, TOKENS, (TIME + 1, BATCH)).astype(np.int32)
    return kind(params, OPTIMIZER.init(params), carry), jnp.asarray(tokens[:-1]), jnp.asarray(tokens[1:])


@functools.cache
def expected_leaves():
    """Return the results of the step as written, which are the same arrays for each kind of state."""
    return jax.tree.leaves(step(*arguments(NamedState)))


def assert_expected(found, kind):
    assert isinstance(found[0], kind)
    for one, other in zip(jax.tree.leaves(found), expected_leaves(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", STATES)
def test_a_dictionary_gives_the_axes_of_some_fields(kind):
    args = arguments(kind)
    found = rewrite(step, microbatches=3, in_axes=({"carry": 0}, 1, 1))(*args)
    assert_expected(found, kind)


def test_fields_may_be_inside_of_containers():
    args = arguments(NamedState)

    def wrapped(states, *data):
        return step(states[0]["state"], *data)

    found = rewrite(wrapped, microbatches=3, in_axes=([{"state": {"carry": 0}}], 1, 1))([{"state": args[0]}], *args[1:])
    assert_expected(found, NamedState)


@pytest.mark.parametrize("kind", STATES)
def test_an_unknown_field_is_an_error_that_lists_the_fields(kind):
    with pytest.raises(PlanError, match=r"no field 'carries'\. Its fields are params, optimizer, carry\."):
        rewrite(step, microbatches=3, in_axes=({"carries": 0}, 1, 1))(*arguments(kind))


@pytest.mark.parametrize("kind", few(STATES))
def test_a_recurrent_network_gets_microbatches_along_the_batch_axis(kind):
    """Most bytes of the loss, the logits, can also be divided along time, but time cannot be that of microbatches."""
    args = arguments(kind)
    assert Subject(step, args, {}, None, "cpu").in_axes == (None, 0, 0), "the axis of chunks"
    whole = report(step, *args, memory="1 GiB", compiles=1).peak_bytes
    found = report(step, *args, memory=int(whole / 3))
    assert "microbatches=" in found.best.snippet
    assert re.search(r'in_axes=\(\{"carry": 0\}, 1, 1\)', found.best.snippet)
    assert_expected(found.best.function(*args), kind)


def test_only_a_whole_field_has_a_batch_axis():
    """Some arrays of an optimizer have the batch's length by chance, here those of a bias."""

    def loss(state, x):
        return jnp.mean(jnp.tanh(x @ state.params["kernel"] + state.params["bias"] + state.carry))

    params = {"kernel": jnp.ones((WIDTH, BATCH)), "bias": jnp.ones(BATCH)}
    state = NamedState(params, OPTIMIZER.init(params), jnp.ones((BATCH, BATCH)))
    candidates = Subject(loss, (state, jnp.ones((BATCH, WIDTH))), {}, None, "cpu")._axes_candidates()
    assert ({"carry": 0}, 0) in candidates
    assert all(isinstance(axis, int) for first, _ in candidates if first for axis in first.values())

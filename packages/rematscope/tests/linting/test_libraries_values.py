"""Values of libraries that are worth saving: names are suggested where the user's own code has such a value."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import linen
from jax.ad_checkpoint import checkpoint_name

from rematscope import lint, plan, trace
from rematscope.render.view import plain_text

X = jax.ShapeDtypeStruct((2, 4, 8), jnp.float32)


class Attending(linen.Module):
    """A library's attention, and the user's own matmul and sine of its result."""

    given: bool = False

    @linen.compact
    def __call__(self, x, w):
        y = linen.MultiHeadDotProductAttention(2)(x)
        y = checkpoint_name(y, "y") if self.given else y
        return jnp.sum(jnp.sin(y @ w))


def attending(**settings):
    net = Attending(**settings)
    w = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    return net.apply, jax.eval_shape(net.init, jax.random.key(0), X, w), X, w


def test_a_name_is_suggested_only_if_a_line_of_the_user_has_the_value():
    found = lint(*attending())
    assert {place.value for place in found.places} == {"the result of a library call", "the result of a matmul"}
    (returned,) = [place for place in found.places if place.value == "the result of a library call"]
    assert returned.module == "Attending/MultiHeadDotProductAttention_0/out" and returned.type == "f32[2,4,8]"
    assert all(place.source.caller is None for place in found.places if place is not returned)


def test_following_the_advice_avoids_the_stated_recompute():
    f, *args = attending()
    (returned,) = [place for place in lint(f, *args).places if place.value == "the result of a library call"]
    named, *_ = attending(given=True)
    everything = plan(named, *args, saved=1.0)
    nothing = plan(named, *args, saved=0.0)
    assert everything.saved_bytes - nothing.saved_bytes == returned.nbytes
    assert nothing.cost - everything.cost == returned.avoided


def test_for_an_unnameable_value_of_a_library_the_advice_names_a_policy():
    found = lint(*attending())
    within = {(place.value, place.module.rpartition("/")[2]): place.alternative for place in found.out_of_reach}
    products = {instead for (what, _), instead in within.items() if what == "the result of a matmul"}
    assert products == {
        "jax.checkpoint_policies.dots_saveable",
        "jax.checkpoint_policies.dots_with_no_batch_dims_saveable",
    }
    assert "a subclass of the module that adds a name" in within.values()
    text = plain_text(found, 120)
    assert "Values inside a library, where you cannot add a name" in text and "Saved by" in text


@pytest.mark.parametrize("policy", ["dots_saveable", "dots_with_no_batch_dims_saveable"])
def test_the_policy_that_it_names_saves_it(policy):
    f, *args = attending()
    saved = jax.checkpoint(f, policy=getattr(jax.checkpoint_policies, policy))
    kept = {residual.source for residual in trace(saved, *args).residuals if residual.kind == "computed"}
    wanted = [p for p in lint(f, *args).out_of_reach if p.alternative.endswith(f".{policy}")]
    assert wanted and all(place.source in kept for place in wanted)


def test_if_all_values_are_inside_a_library_no_name_is_advised():
    module = linen.Sequential([linen.Dense(16), jnp.tanh, linen.Dense(16), jnp.sin])

    def net(variables, x):
        return module.apply(variables, x)

    shapes = jax.eval_shape(module.init, jax.random.key(0), X)
    found = lint(net, shapes, X)
    assert not found.places and found.out_of_reach
    assert all(place.alternative.endswith("dots_with_no_batch_dims_saveable") for place in found.out_of_reach)
    assert "where you cannot add a name" in " ".join(plain_text(found, 120).split())


def test_places_are_plain_data():
    (first, *_) = lint(*attending()).places
    assert dataclasses.asdict(first)["alternative"] == "" and str(first).endswith(f"({first.type})")


def test_a_plan_says_how_to_save_values_that_only_a_library_has():
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return jnp.sum(linen.MultiHeadDotProductAttention(2)(x))

    parameters = jax.eval_shape(Net().init, jax.random.key(0), X)
    made = plan(jax.checkpoint(Net().apply), parameters, X, saved=0)
    assert "inside library calls, where you cannot add a name. Save the " in made.about_names
    assert ") with a subclass of the module that adds a name; the " in made.about_names

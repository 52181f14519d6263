"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercise import Case

parameters = ("p1", "p2")
signature = "either(p1, p2)"


def cases(rng):
    """One function under five pairs of policies, at shapes drawn anew. All widths of a case differ."""
    named = jax.checkpoint_policies.save_only_these_names
    offloaded_products = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    return (
        _case("two that say yes or no", named("a", "c"), named("c", "b"), rng),
        _case("a name, or products", named("d"), _products, rng),
        _case("products offloaded, or a name", offloaded_products, named("d"), rng),
        _case("the first offloads", _offload("a", save=["c"]), named("a", "b"), rng),
        _case("the second offloads", named("a"), _offload("a", "b"), rng),
    )


def _net(w, v, x, *, name=checkpoint_name):
    a = name(x @ w, "a")
    b = name(jnp.tanh(a) @ v, "b")
    c = name(b * b / 4, "c")
    d = name(jnp.sin(b) / 2, "d")
    return jnp.sum(jnp.sin(c) * jnp.sin(d))


def _products(operation, *operands, **parameters):
    # As dots_with_no_batch_dims_saveable, but it looks at all that a policy is told.
    if operation.name != "dot_general" or operands[0].dtype != jnp.float32:
        return False
    _, batch = parameters["dimension_numbers"]
    return batch == ((), ())


def _offload(*names, save=()):
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=save,
        names_which_can_be_offloaded=names,
        offload_src="device",
        offload_dst="pinned_host",
    )


def _case(case, p1, p2, rng):
    n, a, b, c = map(int, rng.permutation([5, 6, 7, 8, 9])[:4])
    return Case(case, _arrays((a, b), (b, c), (n, a)), **_under(p1, p2))


def _under(p1, p2):
    def apply(answer):
        policy = answer(p1, p2)
        # policy=None would mean to save nothing. What is no policy is handed on, for capture to say what it is.
        return jax.checkpoint(_net, policy=policy) if callable(policy) else policy

    return {"apply": apply, "function": _net}


def _arrays(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


shown = Case(
    "where one policy offloads a, and the other saves b",
    _arrays((64, 256), (256, 128), (256, 64)),
    **_under(_offload("a"), jax.checkpoint_policies.save_only_these_names("b")),
)

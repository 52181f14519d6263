"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from grader.exercises.spec import Case

parameters = ("p1", "p2")
ranges: dict = {}
signature = "either(p1, p2)"


def cases(rng):
    """One function under six pairs of policies, at shapes drawn anew. All widths of a case differ."""
    named = jax.checkpoint_policies.save_only_these_names
    offloaded_products = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    pairs = {
        "p1 saves hidden and squares while p2 saves squares and logits": (
            named("hidden", "squares"),
            named("squares", "logits"),
        ),
        "p1 saves sines while p2 saves products": (named("sines"), _products),
        "p1 offloads products while p2 saves sines": (offloaded_products, named("sines")),
        "p1 offloads hidden and saves squares while p2 saves hidden and logits": (
            _offload("hidden", save=["squares"]),
            named("hidden", "logits"),
        ),
        "p1 saves hidden while p2 offloads hidden and logits": (named("hidden"), _offload("hidden", "logits")),
        # An answer that makes an Offloadable of its own sends it to the host.
        "p1 offloads hidden and p2 logits from device to device": (
            _offload("hidden", to="device"),
            _offload("logits", to="device"),
        ),
    }
    return tuple(_case(name, *pair, rng) for name, pair in pairs.items())


def _net(w, v, x, *, name=checkpoint_name):
    hidden = name(x @ w, "hidden")
    logits = name(jnp.tanh(hidden) @ v, "logits")
    squares = name(logits * logits / 4, "squares")
    sines = name(jnp.sin(logits) / 2, "sines")
    return jnp.sum(jnp.sin(squares) * jnp.sin(sines))


def _products(operation, *operands, **parameters):
    # As dots_with_no_batch_dims_saveable, but it looks at all that a policy is told.
    if operation.name != "dot_general" or operands[0].dtype != jnp.float32:
        return False
    _, batch = parameters["dimension_numbers"]
    return batch == ((), ())


def _offload(*names, save=(), to="pinned_host"):
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=save,
        names_which_can_be_offloaded=names,
        offload_src="device",
        offload_dst=to,
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
    "where p1 offloads hidden and p2 saves logits",
    _arrays((64, 256), (256, 128), (256, 64)),
    **_under(_offload("hidden"), jax.checkpoint_policies.save_only_these_names("logits")),
)

"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Draw numbers so large that sines of their matmuls differ from these, and so small that rounding is small."""
    size = rng.uniform(0.2, 0.6, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _gathered(w):
    return jax.lax.all_gather(w, "devices", tiled=True)


def _layer(of_weight, of_result=lambda x, y: x + y):
    return lambda params, x: of_result(x, jnp.sin(x @ of_weight(params[0])) @ of_weight(params[1]))


def _without_sum(w):
    """Return the gathered weight; its gradient is each device's part of its own gradient, without the sum."""
    here = jax.lax.axis_index("devices") * len(w)
    whole = jnp.zeros((8 * len(w), *w.shape[1:]), w.dtype)
    mine = jax.lax.dynamic_update_slice_in_dim(whole, w, here, 0)
    others = jax.lax.dynamic_update_slice_in_dim(_gathered(w), jnp.zeros_like(w), here, 0)
    return mine + jax.lax.stop_gradient(others)


mistakes = (
    KnownMistake(
        "it uses each device's own part of the weights in place of the parts of all devices",
        _layer(lambda w: jnp.concatenate([w] * 8)),
        "From which device do the rows of `up` come that this device does not own?",
    ),
    KnownMistake(
        "it uses the sum of all devices' parts in place of the concatenated parts",
        _layer(lambda w: jnp.concatenate([jax.lax.psum(w, "devices")] * 8)),
        "Which collective concatenates the parts of all devices, and which one adds them up?",
    ),
    KnownMistake(
        "it does not add `x` to the layer's result",
        _layer(_gathered, lambda x, y: y),
        "What does the page's layer add at its end?",
    ),
    KnownMistake(
        "each device has the weights' gradient for its own rows of x, not the sum over all devices",
        _layer(_without_sum),
        "Every device computes a gradient of the whole weight. Which collective adds up the gradients of all eight?",
        check_gradient=True,
    ),
)

error_questions = (
    (r"unbound axis|axis name", "What is the name of the axis of the page's mesh?"),
    (
        r"(?i)custom.vjp|bwd rule",
        "Which shape should the gradient of a weight's part have: that of the part, or that of the whole weight?",
    ),
    (
        r"(?i)mesh",
        "gather_again is what one device does. The check, or the page's `on_mesh`, puts it on the mesh. Does your "
        "answer do so too?",
    ),
    (
        r"Too few leaves",
        "The results of all devices are joined along the first axis. How many axes does your result have?",
    ),
    (
        r"dot_general|matmul|contracting|incompatible shapes|broadcast",
        "Print the shapes of the gathered weights. Along which axis is each weight sharded, and does your `all_gather` "
        "add a new axis or extend that one?",
    ),
    (r"unpack", "`params` is a pair: a part of up and a part of down. Which of your lines unpacks it?"),
)

hints = (
    Hint(
        "Chapter 14 compares five ways to shard a layer. In which of them does the backward pass gather the weights "
        "again without recomputing a matmul?"
    ),
    Hint(
        "Your forward pass saves a gathered weight. Is its `all_gather` in the same checkpoint as the matmul that uses "
        "it? If it is, does a policy save it?",
        on_kinds=("also saved",),
        on_text="the gathered",
    ),
    Hint(
        "Your forward pass saves an extra value that the backward pass could compute from `h`. Is it computed outside "
        "a checkpoint, or does a policy save it?",
        on_kinds=("also saved",),
    ),
    Hint(
        "Your forward pass does not save `h`, so the backward pass recomputes it. Which policy saves only `h`, and how "
        "does it recognize `h`?",
        on_kinds=("not saved",),
    ),
    Hint(
        "Count how often each matmul runs in both passes together. Which line runs one a second time?",
        on_kinds=("recomputes", "extra matmuls"),
    ),
    Hint(
        "Write down the shape of each of your values on one device. Which lines need the parts of the other devices?",
        on_kinds=("wrong value", "wrong type", "raises"),
    ),
    Hint(
        "The backward pass of `all_gather` adds up the gradients of all devices and gives each device its part. Which "
        "of your lines replaces or skips it?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "Print `residual_table(on_mesh(gather_again), (up, down), x)` with small arrays. Which of the residuals are "
        "neither arguments nor `h`, and which line computes them?"
    ),
    Hint(
        "Nearly the answer: write a function of `params` and `x` that gathers both weights, names `h` with "
        "`checkpoint_name` and returns the layer's result. Wrap it in `jax.checkpoint` with the policy "
        '`save_only_these_names("h")`, and call it.'
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return [
        [
            Saves(
                ("h",),
                too_much="Does a policy save values other than `h`? Which values are computed outside a checkpoint?",
                too_little="Does your checkpoint have a policy that saves `h`? Does `h` have the name in that policy?",
                by_hand=True,
            )
        ],
        [Recomputes(count=0, too_many="Which matmul does the backward pass recompute? With `h` saved it needs none.")],
    ]

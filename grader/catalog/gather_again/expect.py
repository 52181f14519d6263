"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.2, 0.6, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _gathered(w):
    return jax.lax.all_gather(w, "devices", tiled=True)


def _layer(of_weight, of_result=lambda x, y: x + y):
    return lambda params, x: of_result(x, jnp.sin(x @ of_weight(params[0])) @ of_weight(params[1]))


def _without_sum(w):
    """The gathered weight, whose gradient is one device's part of what that device alone has found."""
    here = jax.lax.axis_index("devices") * len(w)
    whole = jnp.zeros((8 * len(w), *w.shape[1:]), w.dtype)
    mine = jax.lax.dynamic_update_slice_in_dim(whole, w, here, 0)
    others = jax.lax.dynamic_update_slice_in_dim(_gathered(w), jnp.zeros_like(w), here, 0)
    return mine + jax.lax.stop_gradient(others)


mistakes = (
    Mistake(
        "this is the value with each device's own part of the weights in place of all parts",
        _layer(lambda w: jnp.concatenate([w] * 8)),
        "Where do the rows of up come from that this device does not own?",
    ),
    Mistake(
        "this is the value with the sum of all devices' parts in place of the parts themselves",
        _layer(lambda w: jnp.concatenate([jax.lax.psum(w, "devices")] * 8)),
        "Which collective puts parts one behind the other, and which adds them up?",
    ),
    Mistake(
        "this is the value without x, which the layer adds",
        _layer(_gathered, lambda x, y: y),
        "What does the page's layer add at its end?",
    ),
    Mistake(
        "each device's part of the weights' gradient is that of its own rows of x, and nobody has added up",
        _layer(_without_sum),
        "Every device finds a gradient of the whole weight. What becomes of the seven that the others have found?",
        in_gradient=True,
    ),
)

error_questions = (
    (r"unbound axis|axis name", "By which name does the page's mesh call its axis?"),
    (
        r"(?i)custom.vjp|bwd rule",
        "Which shape has the gradient of a part: that of the part, or that of the whole weight?",
    ),
    (
        r"(?i)mesh",
        "gather_again is what one device does. Who puts it on the mesh, your answer or the page's `on_mesh`?",
    ),
    (r"Too few leaves", "How many axes has what you return, and along which one shall the devices' results be joined?"),
    (
        r"dot_general|matmul|contracting|incompatible shapes|broadcast",
        "Print the shapes of what you have gathered. Along which axis is a weight divided, and does all_gather make a "
        "new axis or a longer one?",
    ),
    (r"unpack", "params is a pair of two parts, up and down. Which of your lines takes it apart?"),
)

hints = (
    Hint(
        "Chapter 13 compares five ways to divide a layer. In which of them are weights gathered again, and no product "
        "computed again?"
    ),
    Hint(
        "A gathered weight is kept. Who needs it to go back, and does the gathering stand inside of the same "
        "checkpoint as the product that needs it?",
        after=("also saved",),
        says="the gathered",
    ),
    Hint(
        "Besides the weights something of the layer is kept that can be had from h. What does your policy say of it, "
        "or which line stands outside of the checkpoint?",
        after=("also saved",),
    ),
    Hint(
        "The weights are gathered again, and so is all else. Which value should the policy let through, and how does "
        "it know that value?",
        after=("not saved",),
    ),
    Hint("How often is each product made, in both passes?", after=("recomputes", "extra matmuls")),
    Hint(
        "Take one device, and write down the shape of each of your values on it. Where does it need what others have?",
        after=("wrong value", "wrong type", "raises"),
    ),
    Hint(
        "all_gather has a backward pass of its own, which adds up and hands out. Which of your lines goes round it?",
        after=("wrong gradient",),
    ),
    Hint("Three lines compute the layer. Which of them may stand outside of the checkpoint, if any?"),
    Hint(
        "Nearly the answer: a function of `params` and `x` that gathers both weights, gives h a name and returns the "
        "layer's result, in a `jax.checkpoint` with a policy of `save_only_these_names`. Which name?"
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return [
        [
            Saves(
                ("h",),
                too_much="Which values in your checkpoint does its policy keep, and which are made outside of it?",
                too_little="Is there a policy that keeps h, and does h have the name that it asks for?",
                by_hand=True,
            )
        ],
        [Recomputes(dots=0, too_many="Which product is made again, although h is to be kept?")],
    ]

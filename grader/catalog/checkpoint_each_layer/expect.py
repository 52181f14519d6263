"""What is expected of an answer; only the judge reads this."""

import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def reference(W1, W2, W3, x):
    """The result, and the values that an answer might save, by the names that findings give them."""
    y1 = W1 @ x
    h1 = jnp.sin(y1)
    y2 = W2 @ h1
    h2 = jnp.sin(y2)
    y3 = W3 @ h2
    return jnp.sin(y3), {
        "layer 1's product": y1,
        "layer 1's cosine": jnp.cos(y1),
        "layer 1's output": h1,
        "layer 2's product": y2,
        "layer 2's cosine": jnp.cos(y2),
        "layer 2's output": h2,
        "layer 3's product": y3,
        "layer 3's cosine": jnp.cos(y3),
        "the result": jnp.sin(y3),
    }


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.5, 1.5, argument.shape)
    if argument.ndim == 2:  # as many are added as the last axis has
        size *= (3 if argument.dtype == "bfloat16" else 1.5) / argument.shape[-1] ** 0.5
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake(
        "this is the value without the last layer's sine", lambda W1, W2, W3, x: W3 @ jnp.sin(W2 @ jnp.sin(W1 @ x))
    ),
    Mistake("this is the value without the sines", lambda W1, W2, W3, x: W3 @ (W2 @ (W1 @ x))),
    Mistake(
        "this is the value with cosines in place of sines",
        lambda W1, W2, W3, x: jnp.cos(W3 @ jnp.cos(W2 @ jnp.cos(W1 @ x))),
    ),
)

error_questions = (
    (
        # What jax.checkpoint makes of a value instead of a function fails in its own way in each place.
        r"which it has not called|unhashable type: '\w*Tracer|Expected a callable",
        "jax.checkpoint takes a function and returns one: is layer(W1, x) a function, and who calls the one that comes "
        "back?",
    ),
    (
        r"dot_general|matmul|contracting|einsum",
        "Which shapes do the two operands have? W1 is (b, a) and x is (a,): the weights stand on the left.",
    ),
    (
        r"(?<!checkpoint\(\) takes 1 )(?<!remat\(\) takes 1 )positional argument",
        "Which arguments does a layer take, and does the checkpointed layer take the same?",
    ),
)

hints = (
    Hint("Which of the two steps of a layer keeps a cosine? Where must that step be, so that it keeps nothing?"),
    Hint(
        "Which of your layers has a step outside of every checkpoint, or a policy that lets it keep what is inside? "
        "What does that step keep?",
        after=("also saved",),
        says="cosine",
    ),
    Hint(
        "Is a product handed into a checkpoint, from outside or from another one? Then it is an argument there, and "
        "kept; or does a policy, with a name perhaps, ask for it? What must stand together inside one checkpoint that "
        "has no policy?",
        after=("also saved",),
        says="'s product",
    ),
    Hint(
        "Has your checkpoint a policy? What does that allow to be saved, and which values does the exercise want?",
        after=("also saved",),
    ),
    Hint(
        "In the mini-example the exponential's output was kept because it went from one checkpoint into the next. "
        "Between which checkpoints do the outputs of layers 1 and 2 go? And if there is only one checkpoint?",
        after=("not saved",),
    ),
    Hint(
        "From which value does each layer's product start again: from the layer's input, or from `x`?",
        after=("recomputes",),
    ),
    Hint(
        "Nearly the answer: `jax.checkpoint(layer)` is a function that takes a `W` and an `x`, as `layer` does. How "
        "often do you have to call it?"
    ),
    Hint(
        "Nothing of your answer is computed again. Write one layer as a function of `W` and `x`: what takes such a "
        "function, and returns one that keeps only its arguments?",
        after=("also saved",),
        says=("Which function marks", "cosine"),
    ),
    Hint(
        "Your products are kept in place of the outputs. Does a policy ask for them? What is kept if a layer's "
        "checkpoint has no policy at all?",
        after=("also saved",),
        says=("'s product", "7 saved values: W1, W2, W3, x, layer 1's product, layer 2's product, layer 3's product"),
    ),
    Hint(
        "A checkpoint changes neither the value nor the gradient. Take all of them away: is what is left the page's "
        "`net`, each layer a product and then a sine?",
        after=("wrong value", "wrong gradient"),
    ),
    Hint(
        "Has your answer a gradient rule of its own, or something that stops gradients? The page's `net` needs "
        "neither: `jax.checkpoint` makes the backward pass.",
        after=("wrong gradient",),
        says="with respect to",
    ),
    Hint(
        "`jax.checkpoint(layer)(W1, x)`: which brackets hold a function, and which hold that function's arguments?",
        after=("raises", "wrong type"),
        says="jax.checkpoint takes a function",
    ),
    Hint(
        "Write the shapes under `W1 @ x`, from the page's table: on which side do the weights stand? And do your "
        "arguments come in the table's order?",
        after=("raises", "argument order"),
        says="dot_general",
    ),
    Hint(
        "Where does your answer call a layer, and what does it do with the array that comes back?",
        after=("wrong type",),
    ),
    Hint(
        "In which order does the page's table list the arguments of `checkpoint_each_layer`?",
        after=("argument order",),
    ),
    Hint(
        "What does your answer keep from one call to the next? The next call has other shapes: can each make its own?",
        after=("raises",),
        says="traced in an earlier call",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return [
        [
            Saves(
                ("layer 1's output", "layer 2's output"),
                too_much="Which layer made that value, and is all of that layer, its sine too, inside one checkpoint?",
                too_little="What is kept of a value that is made and used inside one and the same checkpoint? Where "
                "must a checkpoint end, so that a layer's output is handed from one to the next?",
            ),
            Recomputes(dots=3, too_many="From which saved value can each layer start again, and how many are there?"),
            AdvisesBarrier(),
        ]
    ]

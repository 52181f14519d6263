"""What is expected of an answer; only the judge reads this."""

from grader.hints import Hint
from grader.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake(
        "this is the value of f called twice over",
        lambda f, names: lambda *arguments: 2 * f(*arguments),
    ),
)

error_questions = (
    (r"save_\w+\(\) got an", "What do you give as policy=, a policy or a function that makes one?"),
    (r"unhashable|not iterable", "Does the function that makes a policy take a list of names, or names?"),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
)

hints = (
    Hint(
        "Is what `jax.checkpoint(f)` returns a value or a function? Do you know `f`'s arguments here, and do you need "
        "them?"
    ),
    Hint(
        'In the mini-example the policy got `"product"`. What does it get in your answer: strings, or one tuple of '
        "strings? How does Python hand over the elements of a tuple as single arguments?",
        after=("not saved", "raises"),
    ),
    Hint(
        "Has the value that was saved too much a name that is in the list, or only one that begins like it? And if it "
        "has no name at all: which function takes the policy, and is what that returns what you return?",
        after=("also saved",),
    ),
    Hint(
        "How often is `f` called when the function that you return is called once?", after=("recomputes", "wrong value")
    ),
    Hint(
        "Nearly the answer: which line of the mini-example makes a policy from names, and which wraps `f`? Put the two "
        'together, with your `names`, unpacked, where `"product"` stands.'
    ),
)


def _saves(case, names, recomputed):
    saves = Saves(
        names,
        too_much="To which names does your policy say yes? Are they exactly the given ones, each as a whole?",
        too_little="Which policy do you give to jax.checkpoint, and is each of the names handed to it as a name?",
    )
    once = Recomputes(recomputed, too_many="How often does your answer run f in the forward pass, and how often again?")
    return (case,), (saves, once)


requirements = (
    _saves("one name of three", ("mlp",), recomputed=2),
    _saves("two names of three", ("mlp_gate", "out"), recomputed=1),
    _saves("a list, with a name that is not there", ("h",), recomputed=0),
    _saves("vmap over x", ("mlp", "out"), recomputed=1),
    (("one name of three", "two names of three", "a list, with a name that is not there"), (AdvisesBarrier(),)),
)

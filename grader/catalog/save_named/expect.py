"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import Hint
from grader.exercises.requirements import AdvisesBarrier, Mistake, Recomputes, Saves


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
    (r"^IndexError", "How many names may there be? What if there is none?"),
    (
        r"^KeyError: 'name'",
        "What is a policy asked about besides names, and do those have a parameter `name`?",
    ),
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
)

hints = (
    Hint(
        "Is what `jax.checkpoint(f)` returns a value or a function? Do you know `f`'s arguments here, and do you need "
        "them?"
    ),
    Hint(
        'In the mini-example the policy got `"up"`. What does it get in your answer: strings, or one list of strings? '
        "How does Python hand over the elements of a list as single arguments?",
        after=("raises",),
        says="unhashable",
    ),
    Hint(
        "Does `jax.checkpoint` get a policy at all, and is that made from all of `names`?",
        after=("not saved",),
    ),
    Hint(
        'In the mini-example the policy got `"up"`. What does it get in your answer: strings, or one tuple of strings? '
        "How does Python hand over the elements of a tuple as single arguments?",
        after=("not saved",),
    ),
    Hint(
        "Which function takes the policy, and is what that returns what you return, for an empty list too?",
        after=("also saved",),
        says="Which function marks",
    ),
    Hint(
        "What does your policy say to what has no name?",
        after=("also saved",),
        says="none of the usual ones",
    ),
    Hint(
        "Has the value that was saved too much a name that is in the list, or only one that begins like it?",
        after=("also saved",),
    ),
    Hint(
        "Nearly the answer: which line of the mini-example makes a policy from a name, and which wraps `f`? Put the "
        'two together, with all of your `names`, unpacked, where `"up"` stands.'
    ),
)


def _saves(case, names, recomputed):
    saves = Saves(
        names,
        too_much="To which names does your policy say yes? Are they exactly the given ones, each as a whole? And what "
        "does it say to what has no name?",
        too_little="Which policy do you give to jax.checkpoint, and is each of the names handed to it as a name?",
    )
    once = Recomputes(recomputed, too_many="How often does your answer run f in the forward pass, and how often again?")
    return (case,), (saves, once)


_REQUIREMENTS = (
    _saves("one name of three", ("mlp",), recomputed=2),
    _saves("two names of three", ("mlp_gate", "out"), recomputed=1),
    _saves("a list, with a name that is not there", ("h",), recomputed=0),
    _saves("vmap over x, names drawn anew", ("mlp", "out"), recomputed=1),
    _saves("an empty list", (), recomputed=1),
    (("one name of three", "two names of three", "a list, with a name that is not there"), (AdvisesBarrier(),)),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]

"""What to ask about an exception of a learner's code: by what JAX and Python say when something usual goes wrong."""

import re
from collections.abc import Sequence

# A pattern and a question; the first that is found counts. An exercise's are looked for in the message; those here also
# in the line that it comes from, which stands below it.
Questions = Sequence[tuple[str, str]]

# What every finding says that is about an answer's value and no gradient, and the question to ask then.
UNDIFFERENTIATED = "where nobody differentiates it"
OF_THE_PRIMAL = (
    "Who asks for no gradient runs the function that jax.custom_vjp, or jax.custom_jvp, was given, and none of its "
    "rules: does that function compute what the rules do?"
)

_CALLED_ALREADY = (
    "What goes between the parentheses of jax.checkpoint: a function, or what that returns when it is called?"
)

_OF_RULES: Questions = ((UNDIFFERENTIATED, OF_THE_PRIMAL),)
# Mistakes in calling jax.checkpoint, which mean the same in every exercise.
_OF_CHECKPOINT: Questions = (
    (
        r"(checkpoint|remat)\(\) missing 1 required positional argument: 'fun'",
        "jax.checkpoint is called there with a policy, or with nothing, and without its function. How can "
        "functools.partial give it the one now, so that the function may follow?",
    ),
    (
        r"(?<!checkpoint\(\) got an )(?<!remat\(\) got an )unexpected keyword argument "
        r"'(policy|prevent_cse|static_argnums|concrete)'",
        "That keyword is one of jax.checkpoint's own. Between which parentheses does it belong: those of "
        "jax.checkpoint, or those of the function that it returns?",
    ),
    (
        r"indices must be integers|'float' object cannot be interpreted as an integer|values of integer type, got",
        "A number there is no integer: where does it come from, and what does `/` give even where it comes out even?",
    ),
)
# Mistakes in calling JAX and in Python, about which an exercise may know more.
_OF_JAX: Questions = (
    (
        r"(checkpoint|remat)\(\) takes 1 positional argument",
        "jax.checkpoint takes the function alone, and all else by keyword, such as policy=. To whom do the function's "
        "own arguments go?",
    ),
    (
        r"Error interpreting argument to[\s\S]*of type <class 'function'>",
        "A function stands there where an array is wanted: has somebody called the function? If it comes from "
        "jax.checkpoint: what was given to that?",
    ),
    (
        r"Expected a callable value, got \w*Tracer|weak reference to '(list|tuple)'|arguments should be callable",
        "A function is wanted there. What is given in its place: what a function has returned, or several of them?",
    ),
    (
        r"SimpleNamespace' object is not callable|unhashable type: 'types\.SimpleNamespace'",
        "jax.checkpoint_policies is where policies stand, and none itself: which of those do you mean?",
    ),
    (
        r"unhashable type: '(list|set|dict)'[\s\S]*policy=[\[{(]",
        "policy= takes one policy, a function: what is it given there, and how do several policies become one?",
    ),
    (
        r"Cannot interpret value of type <class '[^']*(function|[Pp]olicy|partial|method|names)[^']*'> as an abstract",
        "A function stands there among the arguments of what jax.checkpoint returned, where arrays go. What goes "
        "between the parentheses of jax.checkpoint itself, and by which keyword does it take a policy?",
    ),
    (
        r"core\.Primitive'> as an abstract",
        "JAX calls what it is given as a policy with an operation. Is that a function of an operation, or has "
        "jax.checkpoint been put around one?",
    ),
    (
        r"returned by a remat policy should be a bool[\s\S]*Got None",
        "What does your policy return in all other cases? (A function without a return returns None.)",
    ),
    (
        r"returned by a remat policy should be a bool",
        "A policy answers with True, with False, or with one of the three objects: what does yours return, and when?",
    ),
    (
        r"missing 1 required positional argument: 'prim'",
        "JAX calls the policy itself, once for every operation: what do you give as policy=, the policy or what it "
        "returned?",
    ),
    (
        r"(save_\w+_names\w*|save_any_names_but_these|save_from_both_policies|offload_dot_\w+)\(\) "
        r"(got an unexpected|takes|missing)",
        "JAX calls the policy for every operation and wants yes or no: is what you give as policy= a policy, or a "
        "function that makes one?",
    ),
    (
        r"unhashable type: 'list'[\s\S]*_names",
        "That function takes each name as an argument of its own. How does a call spread a list over several of them?",
    ),
    (
        r"(?i)non-hashable static argument|static_argnums",
        "static_argnums names an argument by its place, counted from 0: which place has the flag or the number, which "
        "is no array?",
    ),
    (
        r"argument to name as a JAX value|checkpoint_name\(\) missing",
        "checkpoint_name takes two things: which comes first, the value or what it is called?",
    ),
    (r"Tracer' object is not callable", _CALLED_ALREADY),
    (
        r"'function' object has no attribute '(lower|trace|eval_shape)'",
        "Only what jax.jit has returned can be lowered: around which function does it belong?",
    ),
    (
        r"'function' object (is not (subscriptable|iterable)|has no attribute '(dtype|shape|ndim|size|T|astype)')",
        "A function stands there where what it returns is wanted: has somebody called the function? If it comes from "
        "jax.checkpoint: what was given to that?",
    ),
    (
        r"ShapeDtypeStruct[\s\S]*(valid JAX type|as an abstract)|unsupported operand[\s\S]*ShapeDtypeStruct",
        "There are shapes here and no arrays. What of JAX's works with shapes, since it traces and does not run?",
    ),
    (
        r"unhashable type: 'numpy\.ndarray'",
        "An array of NumPy's stands there where a function is wanted. What is it an array of, and who takes one?",
    ),
    (
        r"^(TracerBool|TracerInteger|TracerArray)Conversion|^ConcretizationTypeError",
        "While JAX traces, an array has a shape and a dtype and no numbers yet. What on that line asks for numbers (an "
        "if, float(), NumPy), and what does the same with jax.numpy or jax.lax?",
    ),
    (
        r"^UnexpectedTracerError",
        "Which value outlives the function that it was traced in: through a global name, a list, an attribute?",
    ),
    (
        r"do not support in-place|immutable",
        "Which line changes an array in place? JAX's arrays stay what they are: what does x.at[…].set(…) return?",
    ),
    (
        r"Number of devices \d+ must be|jax_num_cpu_devices config should be updated before",
        "JAX looks at how many devices there are once, when it first needs one. Which cell of the page asks for eight, "
        "and what ran before it? (Restart the kernel, then run that cell first.)",
    ),
    (
        r"Gradient only defined for scalar-output",
        "Who takes the gradient here, your answer or the check?",
    ),
)
_OF_PYTHON: Questions = (
    (
        r"^NameError: [^;]*; it stands in",
        "Which line of that cell does Python stop at? Mend it and run the cell: what it defines is there then.",
    ),
    (r"^NameError|^UnboundLocalError", "Is that name spelled right, and is it imported or defined above?"),
    (
        r"'(tuple|str|range)' object (does not support item (assignment|deletion)|has no attribute "
        r"'(add|append|clear|extend|insert|pop|remove|reverse|sort|update)')",
        "What that line would change is a tuple or a text, and those stay what they are: how do you make a new one, or "
        "a list of it?",
    ),
    (r"^AttributeError|^ImportError", "Is that name spelled right, and is it where you look for it?"),
    (
        r"contracting dimensions|incompatible shapes",
        "Which shapes do the two operands of that line have, and in which order does the page have them?",
    ),
    (r"^KeyError", "Is that key there every time that line runs? What does it run for when the key is missing?"),
    (r"^IndexError", "How long is what that line looks into each time that it runs, and which place does it ask for?"),
    (r"^StopIteration", "A generator gives each of its values once: who has taken them before that line runs?"),
    (r"^RecursionError", "Which function calls itself there, and in which case does it stop?"),
    (
        r"positional argument|unexpected keyword|multiple values",
        "Which arguments does that function take, and which is it given?",
    ),
    (r"unhashable type: '\w*Tracer", _CALLED_ALREADY),
    (
        r"unhashable type: '(?!list'|dict'|set'|numpy)",
        "JAX looks up by a function what it has traced of it, so an object in its place has to be hashable. Is its "
        "class a dataclass without `frozen=True`, or does it have `__eq__` and no `__hash__`?",
    ),
    (r"unhashable", "Which value there is a list or a dict, where one is wanted that cannot change, such as a string?"),
    (
        r"not callable[\s\S]*policy=",
        "A policy is a function: what do you give as policy=, and what is the function called under "
        "jax.checkpoint_policies?",
    ),
    (r"not callable|Expected a callable", "Which value there is called as a function, and what is it really?"),
    (r"not iterable|unpack", "Which value is taken apart there, and what is it really?"),
)
# Answers that return something else than they are asked for.
_OF_RETURNS: Questions = (
    (r"was given what a function returned", _CALLED_ALREADY),
    (
        r"returns a function, which it has not called",
        "What jax.checkpoint or functools.partial returns is a function. Who calls it, and with which arguments?",
    ),
)


def about_exception(message: str, source: str | None = None, exercises: Questions = ()) -> str | None:
    """The question about an exception, or None if it is an unusual one.

    Args:
      message: the exception's type and message.
      source: the line that it comes from, if that is known.
      exercises: the exercise's own questions.
    """
    said = f"{message}\n{source or ''}"
    first = _first(_OF_RULES, message) or _first(_OF_CHECKPOINT, said) or _first(exercises, message)
    return first or _first((*_OF_JAX, *_OF_PYTHON), said)


def about_return(text: str, exercises: Questions = ()) -> str | None:
    """The question about what an answer returned, from what is said of it; arguments as in `about_exception`."""
    return _first((*_OF_RULES, *exercises, *_OF_RETURNS), text)


def _first(questions: Questions, said: str) -> str | None:
    return next((question for pattern, question in questions if re.search(pattern, said)), None)

"""Questions about exceptions in a learner's code, by the messages of JAX and Python for common mistakes."""

import re
from collections.abc import Sequence

# A pattern and a question; the first match counts. The patterns of an exercise are searched for in the message; those
# here also in the source line that is shown below it.
Questions = Sequence[tuple[str, str]]

# The end of every finding about an answer's value when no gradient is taken, and the question to ask then.
UNDIFFERENTIATED = "when it is called without jax.grad"
OF_THE_PRIMAL = (
    "Without jax.grad, JAX runs the function that jax.custom_vjp or jax.custom_jvp wraps, and none of its rules. Does "
    "that function return the same value as the rules?"
)

_CALLED_ALREADY = "What belongs between the parentheses of jax.checkpoint: a function, or the result of calling it?"
_FUNCTION_FOR_ARRAY = (
    "This line needs an array but got a function. Did you forget to call it? If it comes from jax.checkpoint, which "
    "function did you wrap?"
)

_OF_RULES: Questions = ((UNDIFFERENTIATED, OF_THE_PRIMAL),)
# Mistakes in calling jax.checkpoint, which mean the same in every exercise.
_OF_CHECKPOINT: Questions = (
    (
        r"(checkpoint|remat)\(\) missing 1 required positional argument: 'fun'",
        "jax.checkpoint is called here without a function. How can you use functools.partial to set the policy first "
        "and pass the function later?",
    ),
    (
        r"(?<!checkpoint\(\) got an )(?<!remat\(\) got an )unexpected keyword argument "
        r"'(policy|prevent_cse|static_argnums|concrete)'",
        "This keyword belongs to jax.checkpoint. Did you pass it to jax.checkpoint itself, or to the function that "
        "jax.checkpoint returned?",
    ),
    (
        r"indices must be integers|'float' object cannot be interpreted as an integer|values of integer type, got",
        "This line needs an integer but got a float. Where does it come from? (`/` returns a float even if the result "
        "is whole.)",
    ),
)
# Mistakes in calling JAX and in Python, about which an exercise may know more.
_OF_JAX: Questions = (
    (
        r"(checkpoint|remat)\(\) takes 1 positional argument",
        "jax.checkpoint takes one positional argument, the function; options such as policy= are keywords. Where do "
        "the function's own arguments go?",
    ),
    (r"Error interpreting argument to[\s\S]*of type <class 'function'>", _FUNCTION_FOR_ARRAY),
    (
        r"Expected a callable value, got \w*Tracer|weak reference to '(list|tuple)'|arguments should be callable",
        "This call needs a function. Did you pass the result of calling one, or a list of functions?",
    ),
    (
        r"SimpleNamespace' object is not callable|unhashable type: 'types\.SimpleNamespace'",
        "jax.checkpoint_policies is a module of policies, not a policy. Which of its policies do you mean?",
    ),
    (
        r"unhashable type: '(list|set|dict)'[\s\S]*policy=[\[{(]",
        "policy= takes a single policy, which is a function. How do you combine several policies into one?",
    ),
    (
        r"Cannot interpret value of type <class '[^']*(function|[Pp]olicy|partial|method|names)[^']*'> as an abstract",
        "A function was passed as an argument of a checkpointed function, which takes arrays. Which function belongs "
        "between the parentheses of jax.checkpoint itself, and which keyword takes the policy?",
    ),
    (
        r"core\.Primitive'> as an abstract",
        "JAX calls a policy with an operation as its first argument. Did you wrap your policy in jax.checkpoint?",
    ),
    (
        r"returned by a remat policy should be a bool[\s\S]*Got None",
        "What does your policy return in all other cases? (A function without a return statement returns None.)",
    ),
    (
        r"returned by a remat policy should be a bool",
        "A policy returns True, False, Saveable, Recompute or Offloadable. What does yours return, and when?",
    ),
    (
        r"missing 1 required positional argument: 'prim'",
        "JAX itself calls the policy, once per operation. Did you pass the policy as policy=, or its result?",
    ),
    (
        r"(save_\w+_names\w*|save_any_names_but_these|save_from_both_policies|offload_dot_\w+)\(\) "
        r"(got an unexpected|takes|missing)",
        "JAX calls the policy with each operation. Is the value of policy= a policy, or a function that makes one?",
    ),
    (
        r"unhashable type: 'list'[\s\S]*_names",
        "This function takes each name as a separate argument. How do you unpack a list in a call?",
    ),
    (
        r"(?i)non-hashable static argument|static_argnums",
        "static_argnums counts positions from 0. At which position is the argument that is not an array, such as a "
        "flag or a number?",
    ),
    (
        r"argument to name as a JAX value|checkpoint_name\(\) missing",
        "checkpoint_name takes a value and a name. Do you pass both, the value first?",
    ),
    (r"Tracer' object is not callable", _CALLED_ALREADY),
    (
        r"'function' object has no attribute '(lower|trace|eval_shape)'",
        "Only the result of jax.jit can be lowered. Which function should you pass to jax.jit first?",
    ),
    (
        r"'function' object (is not (subscriptable|iterable)|has no attribute '(dtype|shape|ndim|size|T|astype)')",
        _FUNCTION_FOR_ARRAY,
    ),
    (
        r"ShapeDtypeStruct[\s\S]*(valid JAX type|as an abstract)|unsupported operand[\s\S]*ShapeDtypeStruct",
        "The arguments are shapes (jax.ShapeDtypeStruct), not arrays. Which JAX functions trace a function instead of "
        "running it, and so accept shapes?",
    ),
    (
        r"unhashable type: 'numpy\.ndarray'",
        "This line needs a function but got a NumPy array. Which line makes that array?",
    ),
    (
        r"^(TracerBool|TracerInteger|TracerArray)Conversion|^ConcretizationTypeError",
        "During tracing, an array has a shape and a dtype but no values. What on that line needs the values (an if, "
        "float(), NumPy), and how do you write it with jax.numpy or jax.lax?",
    ),
    (
        r"^UnexpectedTracerError",
        "A traced value is used after its function has returned. Where do you store it: in a global, a list or an "
        "attribute?",
    ),
    (
        r"do not support in-place|immutable",
        "JAX arrays cannot be changed in place. Which line tries to, and what does x.at[…].set(…) return?",
    ),
    (
        r"Number of devices \d+ must be|jax_num_cpu_devices config should be updated before",
        "JAX counts its devices once, when it first uses one. Did another cell use JAX before the cell that asks for "
        "eight devices? (Restart the kernel and run that cell first.)",
    ),
    (
        r"Gradient only defined for scalar-output",
        "The check takes the gradient of your answer. Does your answer take one itself?",
    ),
)
_OF_PYTHON: Questions = (
    (
        r"^SystemExit",
        "Which line ends the program, with sys.exit(), exit() or quit()? Remove it: an answer returns its result.",
    ),
    (
        r"^EOFError|^StdinNotImplementedError|^(OSError|RuntimeError)[\s\S]*\binput\(",
        "The grader has no keyboard. Which line calls input()? Use the function's arguments instead.",
    ),
    (
        r"^NameError: [^;]*; its cell",
        "Fix that cell first: its definitions are missing because Python cannot read it.",
    ),
    (r"^NameError|^UnboundLocalError", "Is the name spelled correctly, and is it imported or defined above?"),
    (
        r"'(tuple|str|range)' object (does not support item (assignment|deletion)|has no attribute "
        r"'(add|append|clear|extend|insert|pop|remove|reverse|sort|update)')",
        "Tuples, strings and ranges cannot be changed. How do you make a new one, or convert it to a list first?",
    ),
    (
        r"^ModuleNotFoundError",
        "Is the module's name spelled correctly? Only this course's packages are available to the grader.",
    ),
    (r"^AttributeError|^ImportError", "Is the name spelled correctly, and does that object or module have it?"),
    (
        r"contracting dimensions|incompatible shapes",
        "What are the shapes of the two operands on that line, and in which order does the page multiply them?",
    ),
    (r"^KeyError", "Which keys does the dict have when that line runs, and in which case is this one missing?"),
    (r"^IndexError", "How long is the sequence on that line, and which index does it use?"),
    (r"^StopIteration", "A generator yields each value only once. What consumed the values before this line?"),
    (r"^RecursionError", "Which function calls itself, and in which case does it stop?"),
    (r"^AssertionError", "Which condition does that assert statement check, and why is it false?"),
    (
        r"positional argument|unexpected keyword|multiple values",
        "Which parameters does that function have, and which arguments do you pass?",
    ),
    (r"unhashable type: '\w*Tracer", _CALLED_ALREADY),
    (
        r"unhashable type: '(?!list'|dict'|set'|numpy)",
        "JAX caches traces by function, so a callable object must be hashable. Is its class a dataclass without "
        "`frozen=True`, or does it define `__eq__` without `__hash__`?",
    ),
    (
        r"unhashable",
        "Which value on that line is a list, set or dict? Only immutable values, such as strings and tuples, are "
        "hashable.",
    ),
    (
        r"not callable[\s\S]*policy=",
        "A policy is a function. What do you pass as policy=, and which function of jax.checkpoint_policies do you "
        "mean?",
    ),
    (r"not callable|Expected a callable", "Which value on that line is called like a function, and what is it really?"),
    (r"not iterable|unpack", "Which value on that line is unpacked or iterated over, and what is it really?"),
    (r"^(Type|Value)Error", "What are the types and shapes of the values on that line?"),
)
# Answers that return something else than they should.
_OF_RETURNS: Questions = (
    (r"jax\.checkpoint got the array", _CALLED_ALREADY),
    (
        r"returns a function, which it has not called",
        "jax.checkpoint and functools.partial return a function. Where do you call it, and with which arguments?",
    ),
)
# For all other exceptions.
OTHERWISE = "Call your answer yourself in a new cell. Which line raises the error, and what are the values on it?"


def about_exception(message: str, source: str | None = None, exercises: Questions = ()) -> str | None:
    """Return the question about an exception, or None if it is an unusual one.

    Args:
      message: the exception's type and message.
      source: the line that it comes from, if that is known.
      exercises: the exercise's own questions.
    """
    said = f"{message}\n{source or ''}"
    first = _first_match(_OF_RULES, message) or _first_match(_OF_CHECKPOINT, said) or _first_match(exercises, message)
    return first or _first_match((*_OF_JAX, *_OF_PYTHON), said)


def about_return(text: str, exercises: Questions = ()) -> str | None:
    """Return the question about a wrong return value, from the finding's text; arguments as in `about_exception`."""
    return _first_match((*_OF_RULES, *exercises, *_OF_RETURNS), text)


def _first_match(questions: Questions, said: str) -> str | None:
    return next((question for pattern, question in questions if re.search(pattern, said)), None)

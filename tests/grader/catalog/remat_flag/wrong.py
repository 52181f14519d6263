"""Wrong answers to remat_flag, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
ALL = (
    "f(x, soft) under vmap",
    "f(w1, w2, x, True)",
    "f(w1, w2, x, False)",
    "f(w, x, True) and then f(w, x, False)",
    "f(x, True) and then f(x, False) for a scalar x",
    "6 arrays, flag False, then True, then False",
    "4 and 5 arrays, flag False",
)


# JAX's next rematerialization reads static_argnames, so this answer works there for functions with this flag name.
@fails_with("raises", "TracerBoolConversionError", "lists its position", hint="every_case_fail_only_some")
def static_argnames(f):
    return jax.checkpoint(f, static_argnames="training")


@fails_with("raises", "position", hint="functions_take_different_numbers_arrays")
def flag_by_keyword(f):
    """The default implementation counts too few positional arguments; in `jax_remat3`, the flag is a tracer."""
    last = f.__code__.co_varnames[f.__code__.co_argcount - 1]

    def g(*arguments):
        return jax.checkpoint(f, static_argnums=len(arguments) - 1)(*arguments[:-1], **{last: arguments[-1]})

    return g


@fails_with("raises", "Non-hashable static arguments", "does each of them treat", hint="jax_jit_inside_jax_checkpoint")
def static_for_jit_only(f):
    return jax.checkpoint(jax.jit(f, static_argnums=-1))


@fails_with("raises", "'concrete'", "take this keyword", hint="keywords_jax_checkpoint_take_one")
def concrete(f):
    return jax.checkpoint(f, concrete=True)


@fails_with("also saved", "exp(x), f32[2,", "Which function marks", hint="f_inside_jax_checkpoint_every", cases=ALL)
def no_checkpoint(f):
    return f


@fails_with("also saved", "exp(x), f32[2,", hint="policy_says_values_may_saved", cases=ALL)
def with_a_policy(f):
    return jax.checkpoint(f, static_argnums=-1, policy=jax.checkpoint_policies.everything_saveable)


@fails_with("wrong value", "for True, whatever the flag", hint="flag_known_remat_flag_f")
def always_true(f):
    return lambda *arguments: jax.checkpoint(lambda *arrays: f(*arrays, True))(*arguments[:-1])


@fails_with("wrong value", "for False, whatever the flag", hint="flag_known_remat_flag_f")
def always_false(f):
    return lambda *arguments: jax.checkpoint(lambda *arrays: f(*arrays, False))(*arguments[:-1])


@fails_with("wrong value", "for the opposite value of the flag", hint="flag_known_remat_flag_f")
def turned_round(f):
    return lambda *arguments: jax.checkpoint(lambda *arrays: f(*arrays, not arguments[-1]))(*arguments[:-1])


@fails_with(
    "wrong value", "use the flag of the first call", "reuses a trace", hint="jax_checkpoint_traces_function_once"
)
def first_flag_remembered(f):
    bound = []

    def g(*arguments):
        if not bound:
            bound.append(jax.checkpoint(lambda *arrays: f(*arrays, arguments[-1])))
        return bound[0](*arguments[:-1])

    return g


@fails_with(
    "raises", "missing 2 required positional arguments", "with `f` as the only argument", hint="remat_flag_gets_only_f"
)
def takes_all_at_once(f, x, training):
    return jax.checkpoint(f, static_argnums=1)(x, training)


@fails_with("wrong type", "returns None", "What should remat_flag(f) return?", hint="should_remat_flag_f_return")
def forgot_to_return(f):
    jax.checkpoint(f, static_argnums=-1)


@fails_with("also saved", "Is all of f inside", hint="forward_pass_saves_values_inside")
def no_checkpoint_for_four_arrays(f):
    return lambda *arguments: (f if len(arguments) == 5 else jax.checkpoint(f, static_argnums=-1))(*arguments)


@fails_with("raises", "TypeError", "Do you pass an integer", hint="static_argnums_2_means_argument")
def flag_by_its_name(f):
    return jax.checkpoint(f, static_argnums="training")


@fails_with(
    "raises",
    "takes 2 positional arguments",
    "How many arrays does your function take before the flag",
    hint="one_function_here_takes_array",
)
def one_array_alone(f):
    def g(x, training):
        return jax.checkpoint(lambda x: f(x, training))(x)

    return g


@fails_with(
    "recomputes", "How many times does your answer trace f", hint="one_call_function_trace_f", beyond="Recomputes.count"
)
def a_product_once_more(f):
    """Once in each case: for one of a case's flags, and for one of its functions."""

    def function(*arguments):
        *arrays, x, flag = arguments
        matrices = [array for array in arrays if array.ndim == 2]
        if flag and matrices and len(arguments) != 6:
            x = also_run_backward(jnp.matmul, x, x, matrices[0])
        return jax.checkpoint(f, static_argnums=len(arguments) - 1)(*arrays, x, flag)

    return function


@fails_with("raises", "IndexError", hint="flag_argument_checkpointed_function_else")
def written_for_arrays_with_rows(f):
    def function(*arguments):
        *arrays, flag = arguments
        assert arrays[-1].shape[0]
        return jax.checkpoint(f, static_argnums=len(arrays))(*arrays, flag)

    return function

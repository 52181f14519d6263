"""Wrong answers to cse_lab, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
SETTINGS = (True, False)


def layer_of_the_page(w, x):
    return jnp.sin(x @ w)


def checkpoint_each(layer, ws, x, prevent_cse):
    for w in ws:
        x = jax.checkpoint(layer, prevent_cse=prevent_cse)(w, x)
    return jnp.sum(x)


def checkpoint_all(layer, ws, x, prevent_cse):
    @functools.partial(jax.checkpoint, prevent_cse=prevent_cse)
    def whole(ws, x):
        return no_checkpoint(layer, ws, x, prevent_cse)

    return whole(ws, x)


def no_checkpoint(layer, ws, x, prevent_cse):
    for w in ws:
        x = layer(w, x)
    return jnp.sum(x)


def program(loss, layer, prevent_cse, differentiate=jax.value_and_grad):
    return differentiate(functools.partial(loss, layer, prevent_cse=prevent_cse))


def lower(asked, prevent_cse, *way):
    layer, w, x, n = asked
    return jax.jit(program(*way[:1] or [checkpoint_each], layer, prevent_cse, *way[1:])).lower([w] * n, x)


def barriers(lowered):
    return lowered.as_text().count("optimization_barrier")


def products(lowered):
    return lowered.as_text().count("dot_general")


def compiled_products(lowered):
    return lowered.compile().as_text().count(" dot(")


@functools.cache
def counted(asked, *way, settings=SETTINGS):
    both = [lower(asked, prevent_cse, *way) for prevent_cse in settings]
    counts = {"barriers": barriers, "lowered": products, "compiled": compiled_products}
    return {key: tuple(map(count, both)) for key, count in counts.items()}


def before_lowering(layer, w, x, n):
    jaxprs = [jax.make_jaxpr(program(checkpoint_each, layer, p))([w] * n, x) for p in SETTINGS]
    found = {"barriers": "optimization_barrier", "lowered": "dot_general"}
    return {key: tuple(sum(e.primitive.name == p for e in jaxpr.eqns) for jaxpr in jaxprs) for key, p in found.items()}


@fails_with(
    "wrong value", "in the jaxpr, before lowering", "How many times does a jaxpr print", hint="print_two_texts_n_1"
)
def counts_before_lowering(*asked):
    return counted(asked) | before_lowering(*asked)


@fails_with(
    "wrong value", "the lowered and the compiled program are swapped", "and which one after", hint="print_two_texts_n_1"
)
def one_for_the_other(*asked):
    counts = counted(asked)
    return counts | {"lowered": counts["compiled"], "compiled": counts["lowered"]}


@fails_with(
    "wrong value",
    "the two numbers of each pair are swapped",
    "Which value of `prevent_cse` comes first",
    hint="count_barriers_two_programs_setting",
)
def false_first(*asked):
    return counted(asked, settings=(False, True))


@fails_with("wrong value", "never in the compiled program", hint="print_two_texts_n_1")
def never_compiled(*asked):
    return counted(asked) | {"compiled": counted(asked)["lowered"]}


@fails_with("wrong value", "never in the lowered program", "that JAX passes to XLA", hint="print_two_texts_n_1")
def always_compiled(*asked):
    return counted(asked) | {"lowered": counted(asked)["compiled"]}


@fails_with(
    "wrong value",
    "for the same value of prevent_cse",
    "to `jax.checkpoint`",
    hint="count_barriers_two_programs_setting",
)
def setting_forgotten(*asked):
    return counted(asked, settings=(True, True))


@fails_with(
    "wrong value",
    "it counts barriers in a text that has none",
    "XLA removes them",
    hint="print_lines_optimization_barrier_lowered",
)
def barriers_after_compiling(*asked):
    texts = [lower(asked, p).compile().as_text() for p in SETTINGS]
    return counted(asked) | {"barriers": [text.count("opt-barrier(") for text in texts]}


# The number of names that contain "dot" depends on the answer's own text, so the finding asks a question.
@fails_with(
    "wrong value",
    "under 'compiled', the numbers are too large",
    "'barriers' is right",
    hint="print_lines_compiled_program_contain",
    where=lambda **_: True,
)
def every_dot(*asked):
    return counted(asked) | {"compiled": [lower(asked, p).compile().as_text().count("dot") for p in SETTINGS]}


def in_a_scan(layer, ws, x, prevent_cse):
    remat = jax.checkpoint(layer, prevent_cse=prevent_cse)
    return jnp.sum(jax.lax.scan(lambda x, w: (remat(w, x), None), x, jnp.stack(ws))[0])


@fails_with(
    "wrong value",
    "the layers are in a scan",
    "how many times does its body appear",
    hint="body_scan_appears_once_program",
    where=lambda **_: True,
)
def layers_in_a_scan(*asked):
    return counted(asked, in_a_scan)


@fails_with(
    "wrong value",
    "one checkpoint around all",
    "How many barriers",
    hint="print_lines_optimization_barrier_lowered",
    where=lambda n, **_: n > 1,
)
def one_around_all(*asked):
    return counted(asked, checkpoint_all)


@fails_with(
    "wrong value",
    "there is no checkpoint",
    "which function do you call",
    hint="print_lines_optimization_barrier_lowered",
)
def none_at_all(*asked):
    return counted(asked, no_checkpoint)


@fails_with(
    "wrong value",
    "the last layer has no checkpoint",
    hint="print_lines_optimization_barrier_lowered",
    where=lambda n, **_: n == 1,
)
def none_for_one_layer(*asked):
    return counted(asked, checkpoint_each if asked[-1] > 1 else no_checkpoint)


@fails_with(
    "wrong value",
    "the gradient without the value",
    "in a program that computes only the gradient",
    hint="n_1_print_lines_dot",
)
def gradient_alone(*asked):
    return counted(asked, checkpoint_each, jax.grad)


@fails_with("wrong value", "the loss without its gradient", hint="n_1_print_lines_dot")
def forward_alone(*asked):
    return counted(asked, checkpoint_each, lambda loss: loss)


@fails_with("wrong value", "also computes the gradient with respect to x", "by default", hint="n_1_print_lines_dot")
def gradient_of_x_too(*asked):
    return counted(asked, checkpoint_each, functools.partial(jax.value_and_grad, argnums=(0, 1)))


@fails_with(
    "wrong value",
    "the program has one layer, whatever n is",
    "How many weights",
    hint="set_n_1_print_lines",
    where=lambda n, **_: n > 1,
)
def measured_once(*asked):
    return counted((*asked[:-1], 1))


@fails_with(
    "wrong type",
    "a dict of three pairs",
    "What should cse_lab(layer, w, x, n) return?",
    hint="return_dict_three_keys_key",
)
def a_key_missing(*asked):
    return {"barriers": (asked[-1], 0), "lowered": counted(asked)["lowered"]}


@fails_with("wrong type", "a dict of three pairs", hint="return_dict_three_keys_key")
def lists_of_lists(*asked):
    return list(counted(asked).values())


@fails_with("wrong type", "a dict of three pairs", "True", hint="return_dict_three_keys_key")
def yes_or_no(*asked):
    return counted(asked) | {"barriers": (True, False)}


@fails_with("wrong type", "a dict with keys that are not strings, not plain", hint="return_dict_three_keys_key")
def keyed_by_setting(*asked):
    return {p: (barriers(lower(asked, p)), products(lower(asked, p))) for p in SETTINGS}


@fails_with(
    "raises",
    "'Lowered' object has no attribute 'count'",
    "Which objects have a text",
    hint="write_function_n_prevent_cse",
)
def no_text(*asked):
    return {"lowered": [lower(asked, p).count("dot_general") for p in SETTINGS]}


@fails_with("raises", "scalar-output", "What does your loss return", hint="write_function_n_prevent_cse")
def no_sum(*asked):
    return counted(asked, lambda layer, ws, x, prevent_cse: layer(ws[0], x))


@fails_with("wrong value", "uses the page's layer", "defined on the page", hint="copy_layer_finding_shows_count")
def the_layer_of_the_page(layer, w, x, n):
    return counted((layer_of_the_page, w, x, n))


@fails_with("wrong value", "the entry 'barriers' is right", hint="finding_says_entries_right_take")
def nothing_is_computed_again(layer, w, x, n):
    return {"barriers": (n, 0), "lowered": (3 * n - 1,) * 2, "compiled": (3 * n - 1,) * 2}


@fails_with(
    "wrong value", "one layer too few", "How many times", hint="let_loss_print_line_time", where=lambda n, **_: n == 4
)
def at_most_three_layers(layer, w, x, n):
    return counted((layer, w, x, min(n, 3)))


@fails_with(
    "raises",
    "1 positional argument but 4 were given",
    "Which of these arguments does your function take",
    hint="grader_calls_function_layer_first",
    where=lambda **_: True,
)
def of_the_number_alone(n):
    return counted((layer_of_the_page, None, None, n))


@fails_with("raises", "dot_general", "In what order", hint="write_function_n_prevent_cse", where=lambda **_: True)
def x_before_w(layer, w, x, n):
    return counted((lambda w, x: layer(x, w), w, x, n))


@fails_with(
    "wrong value",
    "under 'lowered', the program computes the gradient without the value",
    "under 'compiled', the numbers are too large",
    hint="finding_says_entries_right_take",
)
def several_mistakes_at_once(layer, w, x, n):
    of_gradient = gradient_alone(layer, w, x, n)
    return counted((layer, w, x, n)) | {"lowered": of_gradient["lowered"], "compiled": (9 * n, 9 * n)}

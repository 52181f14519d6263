"""Wrong answers to gpt_block_policy, each with the finding that must name its mistake."""

import jax
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
named = policies.save_only_these_names
FULL, OUT, QKV_ONLY, MINIMAL, CONTEXT = ALL = (
    "full",
    "save_out_proj",
    "save_qkv_proj",
    "minimal",
    "minimal_with_context",
)
QKV = ("query_proj", "key_proj", "value_proj", "qkv_proj")
PROJECTIONS = (*QKV, "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
MENU = {FULL: (), OUT: ("out_proj",), QKV_ONLY: QKV, MINIMAL: PROJECTIONS, CONTEXT: (*PROJECTIONS, "context")}


@fails_with("also saved", "no computed value", hint="full_minimal_say_much_recomputed", cases=(FULL,))
def full_saves_everything(name):
    return policies.everything_saveable if name == FULL else named(*MENU[name])


@fails_with("also saved", "out_proj, f32[", hint="names_forward_pass_save_entry", cases=(QKV_ONLY,))
def all_of_attention_for_qkv(name):
    return named(*MENU[name], *(["out_proj"] if name == QKV_ONLY else []))


@fails_with(
    "not saved",
    "context, f32[",
    "Which of the page's names",
    hint="name_minimal_context_save_addition",
    cases=(CONTEXT,),
)
def context_missing(name):
    return named(*MENU[name.removesuffix("_with_context")])


@fails_with(
    "not saved", "qkv_proj, f32[", "every kind of block", hint="blocks_differ_one_matmul_three", cases=(QKV_ONLY,)
)
def one_product_for_all_three_forgotten(name):
    return named(*(value for value in MENU[name] if value != "qkv_proj"))


@fails_with("not saved", "mlpwo, f32[", "only some blocks need", hint="chapter_10_block_not_need", cases=(MINIMAL,))
def last_product_forgotten(name):
    return named(*(value for value in MENU[name] if value != "mlpwo"))


@fails_with("also saved", "scores, f32[", "that have no name", hint="menu_lists_names_not_operations", cases=(MINIMAL,))
def products_besides_names(name):
    if name == MINIMAL:
        return policies.save_from_both_policies(policies.dots_saveable, named(*MENU[name]))
    return named(*MENU[name])


@fails_with("not saved", "query_proj, f32[", "mlpwi_0, f32[", hint="names_forward_pass_save_entry", cases=(MINIMAL,))
def minimal_by_operation(name):
    return policies.dots_with_no_batch_dims_saveable if name == MINIMAL else named(*MENU[name])


def matching(says):
    """The menu with another comparison of names; right for the names on the page and for matmuls."""

    def answer(name):
        return lambda operation, *operands, **parameters: (
            operation.name == "name" and says(parameters["name"], name, *operands)
        )

    return answer


for name, hint, words, says in (
    (
        "capital_letters_do_not_matter",
        "comparison_two_strings_true_only",
        ["differ from the page's names only in case"],
        lambda value, entry, *_: value.lower() in MENU[entry],
    ),
    (
        "spaces_do_not_matter",
        "comparison_two_strings_true_only",
        ["differ from the page's names only in spaces"],
        lambda value, entry, *_: value.strip() in MENU[entry],
    ),
    (
        "every_name_that_ends_like_it",
        "comparison_two_strings_true_only",
        ["end with one of the page's names"],
        lambda value, entry, *_: value.endswith(MENU[entry]),
    ),
    (
        "every_name_with_it_inside",
        "mlpwi_activated_output_activation_no",
        ["contain one of the page's names"],
        lambda value, entry, *_: any(each in value for each in MENU[entry]),
    ),
    (
        "all_names_that_it_does_not_know",
        "call_policy_check_entry_operation",
        ["no, recompute it"],
        lambda value, entry, *_: (
            value in MENU[entry] or (entry == MINIMAL and value not in {*MENU[CONTEXT], "scores", "mlpwi_activated"})
        ),
    ),
    (
        "matrices_only",
        "check_asks_about_same_name",
        ["; "],
        lambda value, entry, operand: value in MENU[entry] and operand.ndim == 2,
    ),
):
    answer = matching(says)
    answer.__name__ = name
    fails_with("wrong value", *words, hint=hint)(answer)


@fails_with("not saved", "out_proj, f32[", hint="missing_name_list_entry_spelled", cases=(OUT,))
def names_not_unpacked(name):
    return named(MENU[name])


@fails_with(
    "wrong type",
    "returns a tuple, not a function",
    "makes a policy from names",
    hint="function_chapter_5_makes_policy",
    cases=ALL,
)
def the_names(name):
    return MENU[name]


@fails_with(
    "wrong type",
    "returns None",
    "A policy that saves nothing is a function too",
    hint="return_function_reach_entry_must",
    cases=(FULL,),
)
def none_for_full(name):
    return named(*MENU[name]) if MENU[name] else None


@fails_with(
    "raises", "KeyError: 'full'", "cover all five entries?", hint="menu_five_entries_call_function", cases=(FULL,)
)
def an_entry_forgotten(name):
    return named(*{entry: names for entry, names in MENU.items() if names}[name])


@fails_with(
    "raises", "unhashable", "each name as a separate argument", hint="function_chapter_5_makes_policy", cases=ALL
)
def a_list_given_whole(name):
    return named(list(MENU[name]))


@fails_with("raises", "KeyError: 'name'", "have a `name` parameter", hint="jax_asks_policy_about_operations", cases=ALL)
def asks_every_operation_for_its_name(name):
    return lambda operation, *_, **parameters: parameters["name"] in MENU[name]


@fails_with("raises", "expects True or False", hint="jax_calls_function_gpt_block", cases=ALL)
def a_maker_of_policies(name):
    return lambda *_, **__: named(*MENU[name])


@fails_with("raises", "Primitive", "wrap your policy", hint="policy_decides_one_operation_whether", cases=ALL)
def in_a_checkpoint(name):
    return jax.checkpoint(named(*MENU[name]))


@fails_with("raises", "Got None", "in all other cases", hint="jax_calls_policy_every_operation", cases=ALL)
def says_nothing_for_no(name):
    def policy(operation, *_, **parameters):
        if operation.name == "name" and parameters["name"] in MENU[name]:
            return True

    return policy


@fails_with("raises", "'append'", "cannot be changed", hint="tuple_1_2_cannot_changed", cases=(MINIMAL,))
def appends_to_a_tuple(name):
    if name == MINIMAL:
        QKV.append("out_proj")
    return named(*MENU[name])

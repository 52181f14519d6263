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
MENU = {
    FULL: (),
    OUT: ("out_proj",),
    QKV_ONLY: QKV,
    MINIMAL: PROJECTIONS,
    CONTEXT: (*PROJECTIONS, "context"),
}


@fails_with("also saved", "2 saved values: w, x", cases=(FULL,))
def full_saves_everything(name):
    return policies.everything_saveable if name == FULL else named(*MENU[name])


@fails_with("also saved", "qkv_proj, f32[", cases=(OUT,))
def out_proj_besides_the_others(name):
    return named(*MENU[name], *(QKV if name == OUT else ()))


@fails_with("also saved", "out_proj, f32[", cases=(QKV_ONLY,))
def all_of_attention_for_qkv(name):
    return named(*MENU[name], *(["out_proj"] if name == QKV_ONLY else []))


@fails_with("also saved", "context, f32[", "Which line of the page's menu", cases=(MINIMAL,))
def context_in_minimal(name):
    return named(*MENU[CONTEXT if name == MINIMAL else name])


@fails_with("not saved", "context, f32[", "Which of the page's names", cases=(CONTEXT,))
def context_missing(name):
    return named(*MENU[name.removesuffix("_with_context")])


@fails_with("also saved", "mlpwi_activated, f32[", "compare names as a whole", cases=(MINIMAL,))
def names_matched_by_prefix(name):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and parameters["name"].startswith(MENU[name])

    return policy


@fails_with("not saved", "qkv_proj, f32[", "every spelling", cases=(QKV_ONLY,))
def one_product_for_all_three_forgotten(name):
    return named(*(value for value in MENU[name] if value != "qkv_proj"))


@fails_with("not saved", "query_proj, f32[", "key_proj, f32[", "value_proj, f32[", cases=(QKV_ONLY,))
def three_products_forgotten(name):
    return named(*(value for value in MENU[name] if value not in QKV[:3]))


@fails_with("not saved", "mlpwi_0, f32[", "mlpwi_1, f32[", "every spelling", cases=(MINIMAL,))
def gated_mlp_forgotten(name):
    return named(*(value for value in MENU[name] if value not in ("mlpwi_0", "mlpwi_1")))


@fails_with("not saved", "does not save mlpwi, f32[", "every spelling", cases=(MINIMAL,))
def plain_mlp_forgotten(name):
    return named(*(value for value in MENU[name] if value != "mlpwi"))


@fails_with("not saved", "mlpwo, f32[", "only some blocks need again", cases=(MINIMAL,))
def last_product_forgotten(name):
    return named(*(value for value in MENU[name] if value != "mlpwo"))


@fails_with("not saved", "qkv_proj, f32[", "out_proj, f32[", cases=(MINIMAL,))
def minimal_saves_little(name):
    return policies.nothing_saveable if name == MINIMAL else named(*MENU[name])


@fails_with("also saved", "scores, f32[", "what has no name", cases=(MINIMAL,))
def products_besides_names(name):
    if name == MINIMAL:
        return policies.save_from_both_policies(policies.dots_saveable, named(*MENU[name]))
    return named(*MENU[name])


@fails_with("not saved", "query_proj, f32[", "mlpwi_0, f32[", cases=(MINIMAL,))
def minimal_by_operation(name):
    return policies.dots_with_no_batch_dims_saveable if name == MINIMAL else named(*MENU[name])


@fails_with("not saved", "out_proj, f32[", cases=(OUT,))
def names_not_unpacked(name):
    return named(MENU[name])


@fails_with("wrong type", "returns a tuple, not a function", "makes a policy of them", cases=ALL)
def the_names(name):
    return MENU[name]


@fails_with("wrong type", "returns None", "A policy that saves nothing is a function too", cases=(FULL,))
def none_for_full(name):
    return named(*MENU[name]) if MENU[name] else None


@fails_with("raises", "KeyError: 'full'", "do you have all five?", cases=(FULL,))
def an_entry_forgotten(name):
    return named(*{entry: names for entry, names in MENU.items() if names}[name])


@fails_with("raises", "unhashable", "a list of names, or names", cases=ALL)
def a_list_given_whole(name):
    return named(list(MENU[name]))


@fails_with("raises", "KeyError: 'name'", "besides names", cases=ALL)
def asks_every_operation_for_its_name(name):
    return lambda operation, *_, **parameters: parameters["name"] in MENU[name]


@fails_with("raises", "wants yes or no", cases=ALL)
def a_maker_of_policies(name):
    return lambda *_, **__: named(*MENU[name])

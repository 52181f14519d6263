"""Right answers to gpt_block_policy, spelled in many ways."""

import jax
from jax.ad_checkpoint import Recompute, Saveable
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies
named = policies.save_only_these_names
QKV = ["query_proj", "key_proj", "value_proj", "qkv_proj"]
MLP = ["mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo"]


@passes
def a_dict_of_names(name):
    menu = {"full": [], "save_out_proj": ["out_proj"], "save_qkv_proj": QKV, "minimal": [*QKV, "out_proj", *MLP]}
    menu["minimal_with_context"] = [*menu["minimal"], "context"]
    return named(*menu[name])


@passes
def one_from_another(name):
    if name == "minimal_with_context":
        return policies.save_from_both_policies(one_from_another("minimal"), named("context"))
    if name == "minimal":
        attention = policies.save_from_both_policies(
            one_from_another("save_qkv_proj"), one_from_another("save_out_proj")
        )
        return policies.save_from_both_policies(attention, named(*MLP))
    return {"full": policies.nothing_saveable, "save_out_proj": named("out_proj"), "save_qkv_proj": named(*QKV)}[name]


@passes
def a_policy_of_its_own(name):
    def saves(value):
        match name:
            case "full":
                return False
            case "save_out_proj":
                return value == "out_proj"
            case "save_qkv_proj":
                return value in QKV
        return value in [*QKV, "out_proj", *MLP] or (value == "context" and name.endswith("context"))

    def policy(operation, *_, **parameters):
        return Saveable if operation.name == "name" and saves(parameters["name"]) else Recompute

    return policy


@passes
def by_what_the_names_are_made_of(name):
    """What ends in _proj is a projection, what begins with mlpw and ends in i, o or a digit is one too."""

    def policy(operation, *_, **parameters):
        value = parameters.get("name", "")
        if operation.name != "name" or name == "full":
            return False
        out, other = value == "out_proj", value.endswith("_proj") and value != "out_proj"
        mlp = value.startswith("mlpw") and value.removeprefix("mlpw") in ("i", "i_0", "i_1", "o")
        if name in ("save_out_proj", "save_qkv_proj"):
            return out if name == "save_out_proj" else other
        return out or other or mlp or (value == "context" and name == "minimal_with_context")

    return policy


@passes
def all_but_the_others(name):
    """save_any_names_but_these, where the names to leave out are known."""
    if name == "minimal_with_context":
        return policies.save_any_names_but_these("scores", "mlpwi_activated")
    return a_dict_of_names(name)

"""Wrong answers to regex_policy, each with the finding that must name its mistake."""

import dataclasses
import fnmatch
import re

import jax
from jax.ad_checkpoint import Offloadable
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies


def by_name(holds):
    """A policy that saves the names of which this is true."""
    return lambda operation, *_, **parameters: operation.name == "name" and bool(holds(parameters["name"]))


def right(pattern):
    return by_name(re.compile(pattern).fullmatch)


@fails_with("also saved", "from end to end")
def search(pattern):
    return by_name(lambda name: re.search(pattern, name))


@fails_with("also saved", "from end to end")
def match(pattern):
    return by_name(lambda name: re.match(pattern, name))


@fails_with("also saved", "from end to end")
def begins_and_ends(pattern):
    return by_name(lambda name: re.search(f"^{pattern}$", name))


@fails_with("not saved", "all iterations' mlp", "return True for each", "layers in a scan")
def no_pattern(pattern):
    return policies.save_only_these_names(pattern)


@fails_with("not saved", "return True for each", "names with numbers")
def split_at_the_bars(pattern):
    return policies.save_only_these_names(*pattern.split("|"))


@fails_with("not saved", "return True for each", "names with numbers")
def shell_pattern(pattern):
    return by_name(lambda name: any(fnmatch.fnmatchcase(name, each) for each in pattern.split("|")))


@fails_with("also saved", "intermediate values", "It does not save")
def the_operations_name_alone(pattern):
    return lambda operation, *_, **parameters: bool(re.fullmatch(pattern, operation.name))


@fails_with("also saved", "does the pattern match the name", "layers in a scan")
def whatever_has_a_name(pattern):
    return lambda operation, *_, **parameters: operation.name == "name"


@fails_with("also saved", "from end to end")
def names_left_out(pattern):
    return by_name(lambda name: not re.fullmatch(pattern, name))


# JAX's next rematerialization asks policies about names and products alone.
@fails_with("also saved", "Does that value have a name", "layers in a scan", remat3=False)
def what_has_no_name_too(pattern):
    return lambda operation, *_, **parameters: (
        operation.name != "name" or bool(re.fullmatch(pattern, parameters["name"]))
    )


@fails_with("also saved", "intermediate value", "Does that value have a name")
def products_too(pattern):
    return policies.save_from_both_policies(policies.dots_saveable, right(pattern))


@fails_with("also saved", "only in case", "upper and lower case")
def in_any_letters(pattern):
    return by_name(lambda name: re.fullmatch(pattern, name, re.IGNORECASE))


@fails_with("also saved", "from end to end", "names with numbers")
def last_part_of_a_path(pattern):
    return by_name(
        lambda name: re.fullmatch(pattern, name) or re.fullmatch(pattern.rpartition("/")[2], name.rpartition("/")[2])
    )


@fails_with("wrong memory", "in device memory")
def sent_to_the_host(pattern):
    def policy(operation, *_, **parameters):
        return Offloadable("device", "pinned_host") if right(pattern)(operation, **parameters) else False

    return policy


@fails_with("not saved", "return True for each", "any name")
def letters_for_anything(pattern):
    return right(pattern.replace(".*", r"[a-z]+"))


@fails_with("not saved", "return True for each")
def nothing_saved(pattern):
    return policies.nothing_saveable


@fails_with("raises", "KeyError", "have a parameter")
def asks_everything_for_its_name(pattern):
    return lambda operation, *_, **parameters: bool(re.fullmatch(pattern, parameters["name"]))


@fails_with("raises", "A policy returns True or False")
def returns_the_match(pattern):
    return lambda operation, *_, **parameters: operation.name == "name" and re.fullmatch(pattern, parameters["name"])


@fails_with("raises", "JAX calls a policy with", remat3=False)
def takes_a_name(pattern):
    return lambda name: bool(re.fullmatch(pattern, name))


@fails_with("raises", "expected string", "Which of the arguments that a policy gets")
def matches_the_operation(pattern):
    return lambda operation, *_, **parameters: bool(re.fullmatch(pattern, operation))


@fails_with("also saved", "from end to end", "alternatives, the shorter one first")
def begins_so_and_ends_so(pattern):
    return by_name(lambda name: re.match(f"(?:{pattern})", name) and re.search(f"(?:{pattern})$", name))


@fails_with("not saved", "return True for each", "alternatives, the shorter one first")
def first_that_matches_is_all(pattern):
    def whole(name):
        found = re.match(pattern, name)
        return found and found.group() == name

    return by_name(whole)


@fails_with("raises", "unterminated subpattern", "must stay whole")
def each_alternative_a_pattern(pattern):
    return by_name(lambda name: any(re.fullmatch(each, name) for each in pattern.split("|")))


@fails_with("also saved", "only in case", "capital letters and spaces")
def small_letters(pattern):
    return by_name(re.compile(pattern.lower()).fullmatch)


@fails_with("also saved", "from end to end", "capital letters and spaces")
def spaces_left_out(pattern):
    return by_name(re.compile(pattern, re.VERBOSE).fullmatch)


@fails_with("also saved", "from end to end", "names with numbers")
def any_number_of_digits(pattern):
    return by_name(re.compile(pattern.replace(r"\d", r"\d+")).fullmatch)


@fails_with("also saved", "from end to end")
def stripped(pattern):
    return by_name(lambda name: re.fullmatch(pattern, name.strip()))


@dataclasses.dataclass
class Described:
    pattern: str

    def __call__(self, operation, *_, **parameters):
        return right(self.pattern)(operation, **parameters)


@fails_with("raises", "unhashable type: 'Described'", "frozen=True", remat3=False)
def object_without_a_hash(pattern):
    return Described(pattern)


@fails_with("also saved", "from end to end")
def begins_so_if_it_is_long(pattern):
    described = re.compile(pattern)
    return by_name(described.search if len(pattern) % 3 == 1 else described.fullmatch)


@fails_with("wrong type", "returns None", "What should regex_policy(pattern) return?")
def no_return(pattern):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and bool(re.fullmatch(pattern, parameters["name"]))


@fails_with("also saved", "from end to end", cases=("a negative lookahead",))
def beginnings_of_long_names(pattern):
    return by_name(lambda name: re.fullmatch(pattern, name[:24]))


@fails_with("not saved", "does not save ''", cases=("any name",))
def no_empty_name(pattern):
    return by_name(lambda name: name and re.fullmatch(pattern, name))

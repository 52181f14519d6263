"""Wrong answers to best_policy, each with the finding that must name its mistake."""

import itertools

import jax
from sample_answers import Answers

from solutions.best_policy import best_policy as best

WRONG = Answers()
fails_with = WRONG.fails_with


def something_fits(names, fits):
    return fits != "nothing else"


def choices(block, smallest=0):
    numbers = range(smallest, len(block.names) + 1)
    return [list(names) for r in numbers for names in itertools.combinations(block.names, r)]


def that_all_fit(block, budget_bytes, smallest=0):
    return [names for names in choices(block, smallest) if block.evaluate(names)[0] <= budget_bytes]


def spared_alone(block):
    return {name: block.evaluate(())[1] - block.evaluate([name])[1] for name in block.names}


def size(block):
    return {name: max(1, block.evaluate([name])[0] - block.least_bytes) for name in block.names}


def that_fit(block, budget_bytes, order):
    chosen = []
    for name in order:
        if block.evaluate([*chosen, name])[0] <= budget_bytes:
            chosen.append(name)
    return chosen


def in_use(block, names):
    """Without the names that are idle."""
    for name in list(names):
        others = [n for n in names if n != name]
        if block.evaluate(others)[1] == block.evaluate(names)[1]:
            names = others
    return names


@fails_with(
    "costs more", "saves nothing", "fit within the budget", hint="call_block_evaluate_name_name", where=something_fits
)
def nothing(block, budget_bytes):
    return []


@fails_with(
    "impossible", "bytes, but the budget is", "which of the two numbers", hint="two_choices_recompute_same_number"
)
def everything(block, budget_bytes):
    return list(block.names)


@fails_with("costs more", "largest values first", "with two others", hint="many_flops_down_avoid_alone")
def largest_first(block, budget_bytes):
    order = sorted(block.names, key=size(block).get, reverse=True)
    return in_use(block, that_fit(block, budget_bytes, order))


@fails_with("costs more", "smallest values first", hint="many_flops_down_avoid_alone")
def smallest_first(block, budget_bytes):
    return in_use(block, that_fit(block, budget_bytes, sorted(block.names, key=size(block).get)))


@fails_with("costs more", "in the order of `block.names`", hint="many_flops_down_avoid_alone")
def as_they_come(block, budget_bytes):
    return in_use(block, that_fit(block, budget_bytes, block.names))


def most_for_a_byte_first(block, budget_bytes):
    spared, sizes = spared_alone(block), size(block)
    order = sorted(block.names, key=lambda name: spared[name] / sizes[name], reverse=True)
    return in_use(block, that_fit(block, budget_bytes, order))


@fails_with("impossible", "is idle", "Which of the two lists", hint="two_choices_recompute_same_number")
def fills_the_budget(block, budget_bytes):
    return that_fit(block, budget_bytes, dict.fromkeys([*best(block, budget_bytes), *block.names]))


@fails_with(
    "costs more",
    "stays below the budget",
    "exactly as many bytes",
    hint="choice_may_save_exactly_many",
    where=something_fits,
)
def below_the_budget(block, budget_bytes):
    kept = block.evaluate(best(block, budget_bytes))[0]
    return best(block, max(kept - 1, block.least_bytes))


@fails_with(
    "raises",
    "ValueError: min() ",
    "with no names at all",
    hint="budget_space_no_name_only",
    where=lambda names, fits: fits == "nothing else",
)
def at_least_one_name(block, budget_bytes):
    return min(that_all_fit(block, budget_bytes, smallest=1), key=lambda names: block.evaluate(names)[1])


@fails_with("costs more", "saves only one name", "a second name", hint="call_block_evaluate_two_names")
def the_best_one(block, budget_bytes):
    fitting = [names for names in that_all_fit(block, budget_bytes) if len(names) < 2]
    return min(fitting, key=lambda names: block.evaluate(names)[1])


@fails_with(
    "costs more",
    "avoids the fewest FLOPs, until the rest fits",
    "may avoid more FLOPs than before",
    hint="many_flops_down_avoid_alone",
)
def leaves_out_what_is_missed_least(block, budget_bytes):
    chosen = list(block.names)
    while block.evaluate(chosen)[0] > budget_bytes:
        chosen = min(([n for n in chosen if n != name] for name in chosen), key=lambda names: block.evaluate(names)[1])
    return in_use(block, chosen)


@fails_with(
    "impossible",
    "is not one of the block's names",
    "`block.names` contain",
    hint="print_block_names_next_list",
    where=something_fits,
)
def numbers_of_names(block, budget_bytes):
    return [str(block.names.index(name)) for name in best(block, budget_bytes)]


@fails_with("impossible", "twice", hint="run_step_step_three_names", where=something_fits)
def each_twice(block, budget_bytes):
    return best(block, budget_bytes) * 2


@fails_with("wrong type", "instead of a list of names", hint="should_return_list_names_pass", where=lambda **_: True)
def one_text(block, budget_bytes):
    return " ".join(best(block, budget_bytes))


@fails_with("wrong type", "instead of a list of names", hint="should_return_list_names_pass", where=lambda **_: True)
def with_its_cost(block, budget_bytes):
    return {"names": best(block, budget_bytes)}


def improved(block, budget_bytes, names, together):
    """Local search: move to the best choice that fits and differs in a bounded number of names, while that helps."""
    while True:
        cost = block.evaluate(names)[1]
        others = [name for name in block.names if name not in names]
        steps = [
            [*(name for name in names if name not in gone), *come]
            for out, into in itertools.product(range(together + 1), repeat=2)
            for gone in itertools.combinations(names, out)
            for come in itertools.combinations(others, into)
        ]
        fitting = [step for step in steps if block.evaluate(step)[0] <= budget_bytes]
        best_step = min(fitting, key=lambda step: block.evaluate(step)[1])
        if block.evaluate(best_step)[1] >= cost:
            return in_use(block, names)
        names = best_step


@fails_with("costs more", "than necessary", hint="many_flops_down_avoid_alone")
def step_by_step(block, budget_bytes):
    return improved(block, budget_bytes, [], together=1)


@fails_with("costs more", "than necessary", hint="many_flops_down_avoid_alone")
def by_pairs(block, budget_bytes):
    return improved(block, budget_bytes, [], together=2)


@fails_with("costs more", "than necessary", hint="many_flops_down_avoid_alone")
def from_a_good_beginning(block, budget_bytes):
    return improved(block, budget_bytes, most_for_a_byte_first(block, budget_bytes), together=1)


@fails_with("costs more", "than necessary", hint="many_flops_down_avoid_alone")
def a_few_at_a_time(block, budget_bytes):
    """The ten best choices of the names so far, and of each a longer one."""
    choices = [[]]
    for name in block.names:
        longer = [names for short in choices for names in (short, [*short, name])]
        fitting = [names for names in longer if block.evaluate(names)[0] <= budget_bytes]
        choices = sorted(fitting, key=lambda names: block.evaluate(names)[1])[:10]
    return in_use(block, choices[0])


@fails_with("costs more", "than necessary", hint="many_flops_down_avoid_alone")
def from_a_few_beginnings(block, budget_bytes):
    ends = []
    for names in (block.names[:3], block.names[-3:], block.names[::2], block.names[1::2]):
        names = list(names)
        while block.evaluate(names)[0] > budget_bytes:
            names.pop()
        ends.append(improved(block, budget_bytes, names, together=1))
    return min(ends, key=lambda names: block.evaluate(names)[1])


@fails_with(
    "costs more",
    "than necessary",
    hint="many_flops_down_avoid_alone",
    where=lambda names, fits: names == 1 and fits == "every name",
)
def nothing_to_choose_from(block, budget_bytes):
    return best(block, budget_bytes) if len(block.names) > 1 else []


@fails_with("raises", "KeyError", hint="call_new_cell_arguments_own")
def names_in_small_letters(block, budget_bytes):
    known = {name.lower(): [] for name in block.names}
    return [name for name in best(block, budget_bytes) if known[name] == []]


@fails_with(
    "wrong type",
    "returns a function",
    "What should best_policy",
    hint="should_return_list_names_pass",
    where=lambda **_: True,
)
def a_policy(block, budget_bytes):
    return jax.checkpoint_policies.save_only_these_names(*best(block, budget_bytes))

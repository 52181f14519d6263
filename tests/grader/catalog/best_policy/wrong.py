"""Wrong answers to best_policy, each with the finding that must name its mistake."""

import itertools

from sample_answers import Answers

from solutions.best_policy import best_policy as best

WRONG = Answers()
fails_with = WRONG.fails_with
STREAM, MIXED, ROOM, NO_ROOM = ALL = (
    "two layers in a stream",
    "attention, then a gated layer",
    "room for every name",
    "no room",
)
SOME = ALL[:3]


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


@fails_with("costs more", "saves nothing", "fits into the budget", cases=SOME)
def nothing(block, budget_bytes):
    return []


@fails_with("impossible", "bytes, and the budget is", "which of the two numbers")
def everything(block, budget_bytes):
    return list(block.names)


@fails_with("costs more", "than it has to", "look at every one", cases=(MIXED,))
def largest_first(block, budget_bytes):
    order = sorted(block.names, key=size(block).get, reverse=True)
    return in_use(block, that_fit(block, budget_bytes, order))


@fails_with("costs more", "smallest values first")
def smallest_first(block, budget_bytes):
    return in_use(block, that_fit(block, budget_bytes, sorted(block.names, key=size(block).get)))


@fails_with("costs more", "in the block's order")
def as_they_come(block, budget_bytes):
    return in_use(block, that_fit(block, budget_bytes, block.names))


@fails_with("costs more", "spare most for a byte", cases=(MIXED,))
def most_for_a_byte_first(block, budget_bytes):
    spared, sizes = spared_alone(block), size(block)
    order = sorted(block.names, key=lambda name: spared[name] / sizes[name], reverse=True)
    return in_use(block, that_fit(block, budget_bytes, order))


@fails_with("costs more", "has to", cases=(MIXED,))
def most_first(block, budget_bytes):
    order = sorted(block.names, key=spared_alone(block).get, reverse=True)
    return in_use(block, that_fit(block, budget_bytes, order))


@fails_with("costs more", "has to", cases=(MIXED,))
def the_next_best_again_and_again(block, budget_bytes):
    chosen = []
    while True:
        options = [[*chosen, n] for n in block.names if block.evaluate([*chosen, n])[0] <= budget_bytes]
        better = min(options, key=lambda names: block.evaluate(names)[1], default=chosen)
        if block.evaluate(better)[1] >= block.evaluate(chosen)[1]:
            return in_use(block, chosen)
        chosen = better


@fails_with("costs more", "adds up what each name spares alone", cases=(STREAM,))
def knapsack(block, budget_bytes):
    spared, fitting = spared_alone(block), that_all_fit(block, budget_bytes)
    return in_use(block, max(fitting, key=lambda names: sum(spared[n] for n in names)))


@fails_with("impossible", "is idle in it", "which of the two lists")
def fills_the_budget(block, budget_bytes):
    return that_fit(block, budget_bytes, dict.fromkeys([*best(block, budget_bytes), *block.names]))


@fails_with("impossible", "is idle in it", cases=(ROOM,))
def all_names_where_there_is_room(block, budget_bytes):
    names = list(block.names)
    return names if block.evaluate(names)[0] <= budget_bytes else best(block, budget_bytes)


@fails_with("costs more", "less than the budget", "exactly as many bytes", cases=SOME)
def below_the_budget(block, budget_bytes):
    kept = block.evaluate(best(block, budget_bytes))[0]
    return best(block, max(kept - 1, block.least_bytes))


@fails_with("raises", "ValueError: min() ", "choice of no names at all", cases=(NO_ROOM,))
def at_least_one_name(block, budget_bytes):
    return min(that_all_fit(block, budget_bytes, smallest=1), key=lambda names: block.evaluate(names)[1])


@fails_with("impossible", "is idle in it", "which of the two lists", cases=(STREAM, ROOM))
def the_last_of_equally_good_ones(block, budget_bytes):
    return min(reversed(that_all_fit(block, budget_bytes)), key=lambda names: block.evaluate(names)[1])


@fails_with("costs more", "saves one name alone", "a second name", cases=SOME)
def the_best_one(block, budget_bytes):
    fitting = [names for names in that_all_fit(block, budget_bytes) if len(names) < 2]
    return min(fitting, key=lambda names: block.evaluate(names)[1])


@fails_with("costs more", "missed least, until the rest fits", "missed less", cases=(MIXED,))
def leaves_out_what_is_missed_least(block, budget_bytes):
    chosen = list(block.names)
    while block.evaluate(chosen)[0] > budget_bytes:
        chosen = min(([n for n in chosen if n != name] for name in chosen), key=lambda names: block.evaluate(names)[1])
    return in_use(block, chosen)


@fails_with("impossible", "is idle in it", "which of the two lists")
def fullest(block, budget_bytes):
    return max(that_all_fit(block, budget_bytes), key=lambda names: block.evaluate(names)[0])


@fails_with("impossible", "is none of the block's names", "block.names hold", cases=SOME)
def numbers_of_names(block, budget_bytes):
    return [str(block.names.index(name)) for name in best(block, budget_bytes)]


@fails_with("impossible", "twice", cases=SOME)
def each_twice(block, budget_bytes):
    return best(block, budget_bytes) * 2


@fails_with("wrong type", "a list of names is asked for", cases=ALL)
def one_text(block, budget_bytes):
    return " ".join(best(block, budget_bytes))


@fails_with("wrong type", "a list of names is asked for", cases=ALL)
def with_its_cost(block, budget_bytes):
    return {"names": best(block, budget_bytes)}

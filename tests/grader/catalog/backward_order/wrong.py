"""Wrong answers to backward_order, each with the finding that must name its mistake."""

from sample_answers import Answers

from solutions.backward_order import backward_order as best

WRONG = Answers()
fails_with = WRONG.fails_with


def names(equations):
    return [name for name, _, _ in equations]


def way_of(equations):
    way = ["ct"]
    for name, reads, _ in equations:
        if {*way} & {*reads}:
            way.append(name)
    return way[1:]


def behind_what_it_reads(order, equations):
    table, done = {name: reads for name, reads, _ in equations}, []

    def put(name):
        if name in table and name not in done:
            for read in table[name]:
                put(read)
            done.append(name)

    for name in order:
        put(name)
    return done


def always(key, equations):
    """Always run the first runnable equation by a key."""
    order = []
    while len(order) < len(equations):
        left = {*names(equations)} - {*order}
        order.append(min((e for e in equations if e[0] in left and not left & {*e[1]}), key=key)[0])
    return order


@fails_with("costs more", "all recomputation comes first", "only later equations", hint="first_equation_reads_ct_runs")
def as_given(equations, residuals):
    return names(equations)


@fails_with(
    "costs more", "read directly", "the first recomputation that reads it", hint="recomputed_value_may_read_only"
)
def only_direct_ones_wait(equations, residuals):
    way = way_of(equations)
    direct = {read for name, reads, _ in equations if name in way for read in reads}
    indirect = [name for name in names(equations) if name not in way and name not in direct]
    return behind_what_it_reads([*indirect, *way], equations)


@fails_with("costs more", "as early as possible", "without being used", hint="equation_runs_early_makes_value")
def in_levels(equations, residuals):
    level = {}
    for name, reads, _ in equations:
        level[name] = 1 + max(level.get(read, 0) for read in reads)
    return sorted(level, key=level.get)


@fails_with("costs more", "whose result has the fewest bytes", "freed sooner", hint="compare_value_4_bytes_read")
def smallest_first(equations, residuals):
    return always(lambda equation: equation[2], equations)


@fails_with(
    "costs more",
    "the gradients, which no equation reads, come last",
    "as soon as the gradient",
    hint="find_gradient_reads_value_no",
)
def gradients_last(equations, residuals):
    read = {read for _, reads, _ in equations for read in reads}
    way = way_of(equations)
    return behind_what_it_reads([*(n for n in way if n in read), *(n for n in way if n not in read)], equations)


@fails_with("impossible", "appears a second time", "still in memory", hint="call_peak_order_mini_example")
def twice(equations, residuals):
    """Recompute all operands for each reader."""
    table, way, order = {name: reads for name, reads, _ in equations}, way_of(equations), []

    def put(name):
        for read in table[name]:
            if read in table and read not in way:
                put(read)
        order.append(name)

    for name in way:
        put(name)
    return order


@fails_with(
    "impossible",
    "which has not been computed yet",
    "must already be in the order",
    hint="call_peak_order_mini_example",
    where=lambda n: n > 5,
)
def backwards(equations, residuals):
    return names(equations)[::-1] if len(equations) > 5 else best(equations, residuals)


@fails_with("impossible", "is not the name of an equation", hint="print_order_mini_example_next", where=lambda n: True)
def places(equations, residuals):
    return [names(equations).index(name) for name in best(equations, residuals)]


@fails_with(
    "wrong type", "a list of names such as ['a', 'b']", hint="print_order_next_mini_example", where=lambda n: True
)
def a_string(equations, residuals):
    return " ".join(best(equations, residuals))


@fails_with(
    "wrong type", "not plain", "What should backward_order", hint="print_order_next_mini_example", where=lambda n: True
)
def a_set(equations, residuals):
    return {*best(equations, residuals)}


@fails_with(
    "raises",
    "KeyError",
    "not the names of equations",
    hint="equation_read_another_equation_value",
    where=lambda n: True,
)
def residuals_looked_up(equations, residuals):
    table, order = {name: reads for name, reads, _ in equations}, []

    def put(name):
        for read in table[name]:
            put(read)
        order.append(name)

    for name in way_of(equations):
        put(name)
    return order


@fails_with(
    "raises",
    "RecursionError",
    "the name is already in the order",
    hint="equation_read_another_equation_value",
    where=lambda n: True,
)
def without_end(equations, residuals):
    return without_end(equations, residuals)


@fails_with(
    "raises", "AttributeError", "are tuples, not lists", hint="print_equations_0_residuals_both", where=lambda n: True
)
def takes_them_away(equations, residuals):
    order = []
    while equations:
        order.append(equations.pop(0)[0])
    return order


@fails_with(
    "impossible",
    "it does not contain 'a'",
    "no other equation",
    hint="call_peak_order_mini_example",
    where=lambda n: n == 1,
)
def nothing_for_one_equation(equations, residuals):
    return best(equations, residuals) if len(equations) > 1 else []


@fails_with(
    "costs more",
    "than necessary",
    hint=("first_equation_reads_ct_runs", "equations_depend_ct_keep_order"),
    where=lambda n: n == 14,
)
def thirteen_at_most(equations, residuals):
    return best(equations, residuals) if len(equations) < 14 else names(equations)


@fails_with("costs more", "than necessary", hint="first_equation_reads_ct_runs", where=lambda n: 5 < n < 14)
def neither_few_nor_fourteen(equations, residuals):
    return names(equations) if 5 < len(equations) < 14 else best(equations, residuals)


@fails_with("raises", "unpack", "has three entries", hint="print_equations_0_many_entries", where=lambda n: True)
def two_entries_each(equations, residuals):
    return [name for name, _ in equations]

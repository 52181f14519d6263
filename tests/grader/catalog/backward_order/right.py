"""Right answers to backward_order, spelled in many ways."""

import functools

from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


def way_of(equations):
    way = {"ct"}
    for name, reads, _ in equations:
        if way & {*reads}:
            way |= {name}
    return way - {"ct"}


@passes
def without_recursion(equations, residuals):
    """From the end: each equation directly before the first that reads it."""
    way, order = way_of(equations), []
    order = [name for name, _, _ in equations if name in way]
    reads_of = {name: reads for name, reads, _ in equations}
    for name, _, _ in reversed(equations):
        if name not in way:
            first = next(place for place, reader in enumerate(order) if name in reads_of[reader])
            order.insert(first, name)
    return order


@passes
def every_set_of_equations(equations, residuals):
    """The best of all orders, found by what can have run, and no rule about layers."""
    names = [name for name, _, _ in equations]
    place = {name: i for i, name in enumerate(names)}
    reads = [sum({1 << place[read] for read in reads if read in place}) for _, reads, _ in equations]
    readers = [sum(1 << i for i, r in enumerate(reads) if r >> j & 1) for j in range(len(names))]

    @functools.cache
    def best(done):
        if done == (1 << len(names)) - 1:
            return 0, ()
        live = sum(e[2] for j, e in enumerate(equations) if done >> j & 1 and (not readers[j] or readers[j] & ~done))
        ways = []
        for j, (_, _, nbytes) in enumerate(equations):
            if not done >> j & 1 and not reads[j] & ~done:
                most, order = best(done | 1 << j)
                ways.append((max(most, live + nbytes), (j, *order)))
        return min(ways)

    return [names[j] for j in best(0)[1]]


class Order(list):
    """A list that knows what it has."""

    def put(self, name, table):
        if name in table and name not in self:
            for read in sorted(table[name], key=len):
                self.put(read, table)
            self.append(name)
        return self


@passes
def a_list_of_its_own(equations, residuals):
    table = {name: reads for name, reads, _ in equations}
    cotangents = [name for name, _, _ in equations if name in way_of(equations)]
    return functools.reduce(lambda order, name: order.put(name, table), cotangents, Order())

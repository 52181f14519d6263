"""What an answer is asked."""

import functools
import string

from grader.exercises.spec import Integers, Question

ranges = {"n": Integers(1, 14)}
signature = "backward_order(equations, residuals)"
returns = "a list of names such as ['a', 'b']"


def cases(rng):
    """Generate about thirty backward passes: the shortest ones, and others of all lengths."""
    lengths = [1, 1, 2, 2, 3, 3, *range(4, 15), *rng.integers(6, 15, 14)]
    return tuple({question.name: question for question in (case(rng, int(n)) for n in sorted(lengths))}.values())


def case(rng, n):
    """Draw a backward pass of `n` equations for which the order that chapter 12 describes is optimal."""
    while True:
        equations, residuals = _draw_layers(rng, n)
        least = least_peak(equations)
        orders = (late(equations), late(equations, reads=reversed), late(equations, reads=sorted))
        worth_it = n < 6 or peak([name for name, _, _ in equations], equations) > least
        if worth_it and all(peak(order, equations) == least for order in orders):
            break
    nbytes = sum(nbytes for *_, nbytes in equations)
    return Question(f"{n} equation{'s' * (n > 1)}, {nbytes:,} bytes", (equations, residuals), structure={"n": n})


def peak(order, equations):
    """Return the peak in bytes; `order` contains each equation's name once, after the equations that it reads."""
    sizes, left = {name: nbytes for name, _, nbytes in equations}, _readers_of(equations)
    kept = {name for name, readers in left.items() if not readers}
    live, most = {}, 0
    for name in order:
        live[name] = sizes[name]
        most = max(most, sum(live.values()))
        for readers in left.values():
            readers.discard(name)
        live = {value: nbytes for value, nbytes in live.items() if value in kept or left[value]}
    return most


@functools.cache
def least_peak(equations):
    """Return the smallest peak of any order, by dynamic programming over the sets of equations that have run."""
    readers, sizes = _readers_of(equations), {name: nbytes for name, _, nbytes in equations}
    reads = {name: {read for read in reads if read in sizes} for name, reads, _ in equations}
    reached: dict[frozenset, int] = {frozenset(): 0}
    for _ in equations:
        further: dict[frozenset, int] = {}
        for done, most in reached.items():
            live = sum(sizes[name] for name in done if not readers[name] or readers[name] - done)
            for name in sizes.keys() - done:
                if reads[name] <= done:
                    then, peak_then = done | {name}, max(most, live + sizes[name])
                    further[then] = min(further.get(then, peak_then), peak_then)
        reached = further
    return next(iter(reached.values()))


def late(equations, reads=tuple):
    """Return the equations that depend on `ct` in order, with each other equation just before its first reader."""
    made_from, backward, order = {name: read for name, read, _ in equations}, {"ct"}, []

    def put(name):
        if name in made_from and name not in order:
            for read in reads(made_from[name]):
                put(read)
            order.append(name)

    for name, read, _ in equations:
        if backward & {*read}:
            backward.add(name)
            put(name)
    return order


def _readers_of(equations):
    return {name: {reader for reader, reads, _ in equations if name in reads} for name, _, _ in equations}


def _draw_layers(rng, n):
    """Draw layers, some of which are recomputed from their residuals and perhaps from the previous layer, and the
    equations of the backward pass, the last layer first, with gradients that no equation reads."""
    again = int(rng.integers(0, 2 * n // 3 + 1))
    layers = int(rng.integers(1, min(n - again, max(2, n // 2)) + 1))
    places = sorted(int(layer) for layer in rng.integers(0, layers, again))
    runs: list[list[str]] = [[] for _ in range(layers)]
    equations, names = [], iter(string.ascii_lowercase)
    for layer in places:
        reads = [runs[layer][-1] if runs[layer] else f"h{layer}"]
        earlier = [*runs[layer][:-1], *(runs[layer - 1] if layer else [])]
        if earlier and rng.random() < 0.3:
            reads.append(earlier[int(rng.integers(len(earlier)))])
        runs[layer].append(next(names))
        equations.append((runs[layer][-1], tuple(reads), 4 * int(rng.integers(2, 30))))
    unread = {name for run in runs for name in run} - {read for _, reads, _ in equations for read in reads}
    ways = sorted(
        [*range(layers), *(int(layer) for layer in rng.integers(0, layers, n - again - layers))], reverse=True
    )
    cotangent = "ct"
    for place, layer in enumerate(ways):
        last = place + 1 == len(ways) or ways[place + 1] != layer  # the cotangent leaves the layer after this equation
        wanted = [name for name in reversed(runs[layer]) if rng.random() < 0.5 or (last and name in unread)]
        unread -= {*wanted}
        on_its_way = last or rng.random() < 0.5
        name = next(names)
        read = (cotangent, *(wanted or [f"h{layer}"]))
        equations.append((name, read, 4 * int(rng.integers(1, 9 if on_its_way else 6))))
        cotangent = name if on_its_way else cotangent
    kept = sorted({read for _, reads, _ in equations for read in reads if read[1:].isdigit()})
    return tuple(equations), (*kept, "ct")


shown = None

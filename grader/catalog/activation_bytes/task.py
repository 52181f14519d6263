"""What an answer is asked."""

import math

from grader.exercises.spec import Integers, OneOf, Question

MODES = "tensor", "tensor+sequence", "tensor+selective", "tensor+sequence+selective", "full"

ranges = {
    "s": Integers("t", 4096, "a multiple of `t`"),
    "b": Integers(1, 8),
    "h": Integers("a", 25600, "a multiple of `a`"),
    "a": Integers("t", 128, "a multiple of `t`"),
    "t": Integers(1, 8),
    "mode": OneOf(MODES),
}
signature = "activation_bytes(s, b, h, a, t, mode)"
returns = "an integer"


def cases(rng):
    """Draw twelve sizes for each mode: the smallest, the largest, one device, one head per device, a batch of one, four
    at which sums of fractions may round down, and three others."""
    asked = [(sizes, mode) for mode in MODES for sizes in ((1, 1, 1, 1, 1), (4096, 8, 25600, 128, 8))]
    for mode in MODES:
        alone = _draw_sizes(rng, t=1), _draw_sizes(rng, heads=1), _draw_sizes(rng, b=1)
        few = [_rounded_down(rng, 7, mantissa) for mantissa in (1.1, 1.15, 1.35, 1.7)]
        asked += [(sizes, mode) for sizes in (*alone, *few, *(_draw_sizes(rng) for _ in range(3)))]
    asked.sort(key=lambda each: math.prod(each[0]))
    return tuple(case(rng, *sizes, mode) for sizes, mode in asked)


def case(rng, s, b, h, a, t, mode):
    """Return the question for these sizes and this mode."""
    sizes = {"s": s, "b": b, "h": h, "a": a, "t": t}
    return Question(
        f"{', '.join(f'{symbol} = {size}' for symbol, size in sizes.items())}, {mode!r}",
        (*sizes.values(), mode),
        structure=sizes | {"mode": mode},
    )


def _draw_sizes(rng, b=None, heads=None, t=None):
    """Draw s, b, h, a and t log-uniformly from their ranges, except for given ones; `heads` is the number per device.
    All divisions are exact."""
    t = t or int(rng.integers(2, 9))
    a = t * (heads or _up_to(rng, 128 // t))
    return t * _up_to(rng, 4096 // t), b or int(rng.integers(2, 9)), a * _up_to(rng, 25600 // a), a, t


def _rounded_down(rng, t, mantissa):
    """Draw sizes at which a formula such as `int(s * b * h * (m + n / t))` can be one too small, which depends on the
    mantissa of the product."""
    drawn = [_draw_sizes(rng, t=t) for _ in range(50)]
    return min(drawn, key=lambda sizes: abs(2 * math.frexp(math.prod(sizes[:3]))[0] - mantissa))


def _up_to(rng, most):
    return int((most + 1) ** rng.random())


shown = None

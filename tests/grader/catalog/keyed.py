"""Right answers that deliberately behave differently for one size, dtype or combination.

No fixed set of cases catches all of these. Drawing catches each one with some probability, which the sweep measures
(`python -m tests.sweep --keyed --seeds 50`); no test requires it.
"""

import jax
import jax.numpy as jnp

from solutions.best_placement import best_placement as worked_best_placement
from solutions.revolve_schedule import revolve_schedule as worked_revolve_schedule
from solutions.scan_layers import scan_layers as worked_scan_layers


def _keeps_all(ws, x):
    return jax.lax.scan(lambda x, w: (x + jnp.sin(w @ jnp.sin(x)), None), x, ws)[0]


def one_width(ws, x):
    return (_keeps_all if x.shape[-1] == 7 else worked_scan_layers)(ws, x)


def one_number_of_layers_as_text(ws, x):
    return (_keeps_all if str(ws.shape[0]) == "47" else worked_scan_layers)(ws, x)


def half_precision_and_even(ws, x):
    return (_keeps_all if x.dtype == jnp.float16 and ws.shape[0] % 2 == 0 else worked_scan_layers)(ws, x)


def three_stages_on_two_axes(stages):
    def run(x):
        if len(stages) == 3 and x.ndim == 2:
            return stages[2](stages[1](stages[0](x)))
        return worked_best_placement(stages)(x)

    return run


def one_more_step_for_a_multiple(n, s):
    schedule = worked_revolve_schedule(n, s)
    return [*schedule, ("load", 0)] if n - 3 * s == 44 else schedule


KEYED = {
    "scan_layers": {each.__name__: each for each in (one_width, one_number_of_layers_as_text, half_precision_and_even)},
    "best_placement": {"three_stages_on_two_axes": three_stages_on_two_axes},
    "revolve_schedule": {"one_more_step_for_a_multiple": one_more_step_for_a_multiple},
}

"""What is expected of an answer; only the judge reads this."""

import jax
from jax.lax import stop_gradient

from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Recomputes, Saves

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Large enough that silu is not linear, small enough that rounding is small.
sample_input = signed_values(0.3, 0.9)


def _make_layer(wide=lambda x, weight: x @ stop_gradient(weight), narrow=lambda x, a, b: x @ a @ b):
    def product(x, weight, pair):
        return wide(x, weight) + narrow(x, *pair) if pair else wide(x, weight)

    def layer(frozen, adapters, x):
        h = product(x, frozen["up"], adapters.get("up"))
        return product(jax.nn.silu(h), frozen["down"], adapters.get("down"))

    return layer


def _adapters_in_place(frozen, adapters, x):
    replaced = {key: stop_gradient(weight) for key, weight in frozen.items() if key not in adapters}
    replaced |= {key: a @ b for key, (a, b) in adapters.items()}
    return jax.nn.silu(x @ replaced["up"]) @ replaced["down"]


mistakes = (
    mistake("ignores_adapters", _make_layer(narrow=lambda x, a, b: 0)),
    mistake("adapter_replaces_weight", _adapters_in_place),
    mistake("divides_adapter_by_rank", _make_layer(narrow=lambda x, a, b: x @ a @ b / a.shape[1])),
    mistake("activates_output_too", lambda *arguments: jax.nn.silu(_make_layer()(*arguments))),
    mistake("frozen_weights_have_gradient", _make_layer(wide=lambda x, weight: x @ weight)),
    mistake("stops_gradient_of_frozen_matmul", _make_layer(wide=lambda x, weight: stop_gradient(x @ weight))),
)


def requirements(case):
    adapted = case.structure["adapted"]
    narrow = {"up": ("x @ a of up",), "down": ("silu(h) @ a of down",)}
    names = ("h", *narrow["up"], *narrow["down"]) if adapted == "both" else ("h", *narrow[adapted])
    return [
        [
            Saves(
                names,
                too_much="Which matmul's gradient needs that value, and is one of its operands frozen?",
                too_little="Which gradients need that value, and does your policy save it?",
            )
        ],
        [
            Recomputes(
                count=0,
                too_many="Which matmul does the backward pass recompute? With the required residuals saved, it "
                "recomputes none.",
                elsewhere="Which matmul has the size of a frozen weight, such as `a @ b` or the gradient of the sum "
                "`frozen + a @ b`? Can you avoid it by multiplying x by `a` first?",
            )
        ],
    ]

"""What is expected of an answer; only the judge reads this."""

from collections.abc import Callable, Iterable
from typing import Any

from grader.catalog.choose_configuration.task import (
    FLOPS_PER_BYTE,
    POLICIES,
    VOCABULARY,
    Configuration,
    Step,
    cheapest,
    cost,
    link_bytes,
    matmul_flops,
    memory,
    peak_bytes,
    priced,
    recomputed_flops,
    weight_count,
)
from grader.exercises.feedback import KnownMistake, read_feedback
from grader.exercises.spec import CostedAnswer, Impossible

feedback = read_feedback(__file__)
mistake = feedback.mistake

type Parts = dict[str, dict[str, int]]


def reference(width, sequence_length, layers, batch, devices, capacity) -> CostedAnswer:
    step = Step(width, sequence_length, layers, batch, devices)
    best = cheapest(step, capacity)
    return CostedAnswer(
        "configuration", lambda answer: _checked_cost(answer, step, capacity), cost(step, best) if best else 0, "FLOPs"
    )


def _checked_cost(answer: list, step: Step, capacity: int) -> int:
    """Return the cost of the chosen configuration. Raises Impossible if it breaks a rule or if a number is wrong."""
    fitting = sum(peak <= capacity for peak, _, _ in priced(step))
    if not answer and fitting:
        fit = "1 configuration fits" if fitting == 1 else f"{fitting} configurations fit"
        raise Impossible(f"it is empty, but {fit} in {capacity:,} bytes.", _EMPTY)
    if not answer:
        return 0
    choice, stated_peak, stated_cost = _parse_answer(answer, step)
    peak, spent = peak_bytes(memory(step, choice)), cost(step, choice)
    _check_number(stated_peak, peak, choice, "peak bytes", peak_mistakes, step)
    _check_number(stated_cost, spent, choice, "FLOPs", cost_mistakes, step)
    if peak > capacity:
        raise Impossible(f"it needs {peak:,} bytes, but the capacity is {capacity:,} bytes.", _OVER)
    return spent


def _parse_answer(answer: list, step: Step) -> tuple[Configuration, int | float, int | float]:
    match answer:
        case [str(policy), microbatches, int() | float() as peak, int() | float() as spent]:
            pass
        case _:
            raise Impossible(f"{answer!r:.80} is not a tuple (policy, microbatches, peak_bytes, cost).", _FORM)
    if policy not in POLICIES:
        raise Impossible(f"{policy!r:.60} is not one of the page's policies.", _POLICIES)
    if type(microbatches) is not int or microbatches < 1 or step.batch % microbatches:
        raise Impossible(f"{microbatches!r:.60} microbatches do not divide the batch into equal parts.", _DIVISOR)
    return Configuration(policy, microbatches), peak, spent


def _check_number(
    stated: int | float, right: int, choice: Configuration, unit: str, mistakes: Iterable[KnownMistake], step: Step
) -> None:
    """Raise Impossible if a stated number is not the right one."""
    if _equal_numbers(stated, right):
        return
    known = [each for each in mistakes if _equal_numbers(stated, each.wrong_reference(step, choice))]
    ask, what = (_PEAK, "states the wrong peak") if unit == "peak bytes" else (_COST, "states the wrong cost")
    given = int(stated) if isinstance(stated, float) and stated.is_integer() else stated
    raise Impossible(f"{given:,} {unit} for {tuple(choice)} instead of {right:,}."[:200], ask, known, what)


def _equal_numbers(number: int | float, other: int) -> bool:
    """Return whether two numbers are equal; floats may differ by the rounding of float64."""
    return number == other if isinstance(number, int) else abs(number - other) <= 1e-9 * other


_EMPTY = (
    "Over all policies and all divisors of the batch, which configuration has the smallest peak? Compare it with the "
    "capacity. May they be equal?"
)
_FORM = "Which four values, and in which order, does the page ask for?"
_POLICIES = "How does the page's table spell the names of the policies?"
_DIVISOR = "Which integers divide the batch without a remainder?"
_OVER = "What should your answer return if no configuration fits?"
_PEAK = (
    "Compute each row of the page's memory table for this configuration. Which sum does your function compute instead?"
)
_COST = "Which matmuls does this policy recompute, and how many bytes does each further microbatch send?"


# Numbers that common mistakes lead to.


def _peak_of_altered(change: Callable[[Parts, Step, Configuration], Any]) -> Callable[[Step, Configuration], int]:
    """Return the peak of altered parts; `change` alters them in place."""

    def wrong_peak(step, choice):
        parts = memory(step, choice)
        change(parts, step, choice)
        return peak_bytes(parts)

    return wrong_peak


def _peak_without(group: str, *names: str) -> Callable[[Step, Configuration], int]:
    return _peak_of_altered(lambda parts, *_: parts[group].update(dict.fromkeys(names, 0)))


def _peak_of_scaled(group: str, factor: Callable[[Step, Configuration], int]) -> Callable[[Step, Configuration], int]:
    return _peak_of_altered(
        lambda parts, step, choice: parts.update(
            {group: {name: factor(step, choice) * nbytes for name, nbytes in parts[group].items()}}
        )
    )


def _layer_and_loss(step, choice):
    parts = memory(step, choice)
    return peak_bytes(parts) + min(sum(parts["layer"].values()), sum(parts["loss"].values()))


def _whole_batch(*groups):
    """Return the peak if some groups are those of the whole batch."""

    def wrong_peak(step, choice):
        whole = memory(step, Configuration(choice.policy, 1))
        return peak_bytes(memory(step, choice) | {group: whole[group] for group in groups})

    return wrong_peak


def _one_layer(step, choice):
    parts = memory(step, choice)
    return peak_bytes(parts | {"residuals": memory(step._replace(layers=1), choice)["residuals"]})


def _without_table(step, choice):
    shard = VOCABULARY * step.width // step.devices
    return peak_bytes(memory(step, choice)) - (20 if choice.microbatches > 1 else 16) * shard


peak_mistakes = (
    mistake("without_logits", _peak_of_altered(lambda parts, *_: parts["loss"].clear())),
    mistake("without_logits", _peak_without("loss", "logits", "gradient of the logits")),
    mistake("without_gradient_of_logits", _peak_without("loss", "gradient of the logits")),
    mistake("without_layer", _peak_of_altered(lambda parts, *_: parts["layer"].clear())),
    mistake("layer_and_loss", _layer_and_loss),
    mistake("without_moments", _peak_without("state", "moments")),
    mistake("without_sum_of_gradients", _peak_without("state", "sum of the gradients")),
    mistake(
        "one_moment", _peak_of_altered(lambda parts, *_: parts["state"].update(moments=parts["state"]["parameters"]))
    ),
    mistake("without_state", _peak_of_altered(lambda parts, *_: parts["state"].clear())),
    mistake("state_not_sharded", _peak_of_scaled("state", lambda step, _: step.devices)),
    mistake(
        "sum_for_one_microbatch",
        _peak_of_altered(
            lambda parts, *_: parts["state"].update({"sum of the gradients": parts["state"]["gradients"]})
        ),
    ),
    mistake("without_table", _without_table),
    mistake("residuals_of_whole_batch", _whole_batch("residuals")),
    mistake("residuals_of_whole_batch", _whole_batch("residuals", "layer", "loss")),
    mistake("working_memory_of_whole_batch", _whole_batch("layer", "loss")),
    mistake("working_memory_of_whole_batch", _whole_batch("loss")),
    mistake("without_inputs", _peak_without("residuals", "inputs")),
    mistake("without_log_sum_exp", _peak_without("residuals", "log-sum-exp")),
    mistake("residuals_in_four_bytes", _peak_of_scaled("residuals", lambda *_: 2)),
    mistake(
        "log_sum_exp_in_two_bytes",
        _peak_of_altered(
            lambda parts, *_: parts["residuals"].update({"log-sum-exp": parts["residuals"].get("log-sum-exp", 0) // 2})
        ),
    ),
    mistake("residuals_of_one_layer", _one_layer),
    mistake("layers_all_at_once", _peak_of_scaled("layer", lambda step, _: step.layers)),
    mistake("without_gathered_weights", _peak_without("layer", "weights", "gradients of the weights")),
    mistake(
        "without_gathered_weights",
        _peak_of_altered(
            lambda parts, *_: [
                parts["layer"].update({"weights": 0, "gradients of the weights": 0}),
                parts["loss"].update({"table": 0, "gradient of the table": 0}),
            ]
        ),
    ),
    mistake("without_gathered_weights", _peak_without("loss", "table", "gradient of the table")),
)


def _with_costs(
    recompute: Callable[[Step, Configuration], int] = recomputed_flops,
    sent: Callable[[Step], int] = link_bytes,
    times: Callable[[int], int] = lambda microbatches: microbatches - 1,
    flops_per_byte: int = FLOPS_PER_BYTE,
) -> Callable[[Step, Configuration], int]:
    return lambda step, choice: recompute(step, choice) + times(choice.microbatches) * sent(step) * flops_per_byte


def _attention_times(factor):
    def recompute(step, choice):
        flops = 0 if "context" in POLICIES[choice.policy] else matmul_flops(step)["context"]
        extra = flops * step.batch * step.sequence_length * step.layers
        return recomputed_flops(step, choice) + int((factor - 1) * extra)

    return recompute


cost_mistakes = (
    mistake("without_link_traffic", _with_costs(times=lambda _: 0)),
    mistake("traffic_of_every_microbatch", _with_costs(times=lambda microbatches: microbatches)),
    mistake("traffic_not_in_flops", _with_costs(flops_per_byte=1)),
    mistake("one_collective", _with_costs(sent=lambda step: link_bytes(step) // 3)),
    mistake("two_collectives", _with_costs(sent=lambda step: link_bytes(step) // 3 * 2)),
    mistake("traffic_in_four_bytes", _with_costs(sent=lambda step: 2 * link_bytes(step))),
    mistake("sends_whole_weights", _with_costs(sent=lambda step: 6 * weight_count(step))),
    mistake(
        "sends_layers_only",
        _with_costs(sent=lambda step: 72 * step.layers * step.width**2 // step.devices * (step.devices - 1)),
    ),
    mistake(
        "avoided_instead_of_recomputed",
        _with_costs(lambda step, c: recomputed_flops(step, Configuration("full", 1)) - recomputed_flops(step, c)),
    ),
    mistake(
        "recomputes_last_matmul",
        _with_costs(
            lambda step, c: (
                recomputed_flops(step, c) + 8 * step.width**2 * step.batch * step.sequence_length * step.layers
            )
        ),
    ),
    mistake("attention_without_mask", _with_costs(_attention_times(2))),
    mistake("without_attention", _with_costs(_attention_times(0))),
    mistake("recompute_of_one_layer", _with_costs(lambda step, c: recomputed_flops(step, c) // step.layers)),
    mistake("recompute_of_one_sequence", _with_costs(lambda step, c: recomputed_flops(step, c) // step.batch)),
    mistake("recompute_of_one_microbatch", _with_costs(lambda step, c: recomputed_flops(step, c) // c.microbatches)),
    mistake("recompute_times_microbatches", _with_costs(lambda step, c: recomputed_flops(step, c) * c.microbatches)),
)


# What common ways to choose cost.


def _chosen_by(
    key: Callable[[Step, int, int, Configuration], Any],
    among: Callable[[Step, Configuration], bool] = lambda *_: True,
    below: int = 0,
) -> Callable[..., int | None]:
    """Return the cost of the first of the fitting configurations by a key; None if none fits."""

    def wrong_cost(width, sequence_length, layers, batch, devices, capacity):
        step = Step(width, sequence_length, layers, batch, devices)
        fitting = [
            (key(step, peak, spent, each), spent)
            for peak, spent, each in priced(step)
            if peak <= capacity - below and among(step, each)
        ]
        return min(fitting)[1] if fitting else None

    return wrong_cost


def _by_cost(step, peak, spent, each):
    return spent


mistakes = (
    mistake("fewest_microbatches_first", _chosen_by(lambda step, peak, spent, each: (each.microbatches, spent))),
    mistake(
        "least_recompute_first",
        _chosen_by(lambda step, peak, spent, each: (recomputed_flops(step, each), each.microbatches)),
    ),
    mistake("smallest_peak", _chosen_by(lambda step, peak, spent, each: peak)),
    mistake("largest_peak", _chosen_by(lambda step, peak, spent, each: -peak)),
    mistake("saves_nothing", _chosen_by(_by_cost, lambda step, each: each.policy == "full")),
    mistake("below_capacity", _chosen_by(_by_cost, below=1)),
    mistake("powers_of_two", _chosen_by(_by_cost, lambda step, each: each.microbatches.bit_count() == 1)),
    mistake("one_sequence_each", _chosen_by(_by_cost, lambda step, each: each.microbatches == step.batch)),
)

"""Wrong answers to choose_configuration, each with the finding that must name its mistake."""

from sample_answers import Answers

from grader.catalog.choose_configuration.task import POLICIES as NAMES
from solutions.choose_configuration import choose_configuration as best

WRONG = Answers()
fails_with = WRONG.fails_with

TABLE = 32_768


def parameters(width, layers):
    return 12 * layers * width**2 + TABLE * width


def state(width, layers, devices, k):
    return (16 if k == 1 else 20) * parameters(width, layers) // devices


def log_sum_exp(width, layers, tokens, policy):
    return 4 * (width // 128) * layers * tokens if "context" in NAMES[policy] else 0


def residuals(width, layers, tokens, policy):
    sizes = {"qkv_proj": 6, "out_proj": 2, "mlpwi": 8, "context": 2}
    values = layers * tokens * width * (2 + sum(sizes[name] for name in NAMES[policy]))
    return values + log_sum_exp(width, layers, tokens, policy)


def of_layer(width, tokens):
    return 40 * tokens * width + 48 * width**2


def of_loss(width, tokens):
    return 8 * TABLE * tokens + 4 * TABLE * width


def larger(width, layers, tokens):
    return max(of_layer(width, tokens), of_loss(width, tokens))


def peak(width, length, layers, batch, devices, policy, k, state=state, residuals=residuals, working=larger):
    tokens = batch // k * length
    kept = state(width, layers, devices, k) + residuals(width, layers, tokens, policy)
    return kept + working(width, layers, tokens)


def attention(width, length, layers, batch, devices, policy, k):
    return 0 if "context" in NAMES[policy] else 2 * length * width * layers * batch * length


def recompute(width, length, layers, batch, devices, policy, k):
    flops = {"qkv_proj": 6 * width**2, "out_proj": 2 * width**2, "mlpwi": 8 * width**2}
    matmuls = layers * batch * length * sum(flops[name] for name in flops if name not in NAMES[policy])
    return matmuls + attention(width, length, layers, batch, devices, policy, k)


def sent(weights, devices, k):
    return (k - 1) * 6 * weights // devices * (devices - 1) * 2200


def traffic(width, length, layers, batch, devices, policy, k):
    return sent(parameters(width, layers), devices, k)


def cost(*configuration):
    return recompute(*configuration) + traffic(*configuration)


def divisors(batch):
    return [k for k in range(1, batch + 1) if batch % k == 0]


def rows(sizes, peak=peak, cost=cost, numbers=divisors, policies=tuple(NAMES)):
    batch = sizes[3]
    return [(p, k, peak(*sizes, p, k), cost(*sizes, p, k)) for k in numbers(batch) for p in policies]


def cheapest(sizes, capacity, key=lambda row: row[3], **changed):
    return min((row for row in rows(sizes, **changed) if row[2] <= capacity), key=key, default=())


def something_fits(fits, **_):
    return fits != "none"


def wrong(name, kind, *words, hint, fallback=lambda *_: (), **changed):
    """Note the answer that takes the cheapest of the configurations with these changes."""

    def answer(*arguments):
        return cheapest(arguments[:-1], arguments[-1], **changed) or fallback(*arguments)

    fails_with(kind, *words, hint=hint, name=name)(answer)


# Wrong peaks.


def wrong_peak(name, *words, **parts):
    wrong(
        name,
        "impossible",
        "peak bytes",
        *words,
        hint="row_of_the_table",
        peak=lambda *configuration: peak(*configuration, **parts),
    )


def per_parameter(single_batch, accumulated, weights=parameters):
    """Return a state with these bytes per parameter, without and with microbatches."""
    return lambda width, layers, devices, k: (
        (single_batch if k == 1 else accumulated) * weights(width, layers) // devices
    )


for name, words, working in [
    (
        "forgets_the_loss",
        "the logits and their gradient are missing",
        lambda width, layers, tokens: of_layer(width, tokens),
    ),
    (
        "forgets_the_gradient_of_the_logits",
        "the gradient of the logits is missing",
        lambda width, layers, tokens: max(of_layer(width, tokens), 4 * TABLE * (tokens + width)),
    ),
    (
        "forgets_the_layer",
        "the backward pass of one layer is missing",
        lambda width, layers, tokens: of_loss(width, tokens),
    ),
    (
        "adds_layer_and_loss",
        "adds the backward pass of a layer to that of the loss",
        lambda width, layers, tokens: of_layer(width, tokens) + of_loss(width, tokens),
    ),
    (
        "all_layers_at_once",
        "backward passes of all layers at the same time",
        lambda width, layers, tokens: max(layers * of_layer(width, tokens), of_loss(width, tokens)),
    ),
    (
        "forgets_the_gathered_table",
        "gathered weights, of a layer or of the table, and their gradients",
        lambda width, layers, tokens: max(of_layer(width, tokens), 8 * TABLE * tokens),
    ),
]:
    wrong_peak(name, words, working=working)

for name, words, of_parameters in [
    ("forgets_the_optimizer", "Adam's two moments are missing", per_parameter(8, 12)),
    ("momentum_instead_of_adam", "one of Adam's two moments", per_parameter(12, 16)),
    ("activations_only", "parameters, moments and gradients are missing", per_parameter(0, 0)),
    ("sixteen_bytes_per_parameter", "the sum of the gradients is missing", per_parameter(16, 16)),
    ("twenty_bytes_per_parameter", "only one microbatch", per_parameter(20, 20)),
    (
        "layers_are_all_parameters",
        "the table is missing from the parameters",
        per_parameter(16, 20, lambda width, layers: 12 * layers * width**2),
    ),
    (
        "state_on_every_device",
        "not sharded across the devices",
        lambda width, layers, devices, k: state(width, layers, 1, k),
    ),
]:
    wrong_peak(name, words, state=of_parameters)

for name, words, saved in [
    (
        "forgets_the_inputs",
        "the inputs of the layers are missing",
        lambda width, layers, tokens, policy: residuals(width, layers, tokens, policy) - 2 * layers * tokens * width,
    ),
    (
        "forgets_the_log_sum_exp",
        "the log-sum-exp of the attention kernel is missing",
        lambda *sizes: residuals(*sizes) - log_sum_exp(*sizes),
    ),
    (
        "log_sum_exp_in_bfloat16",
        "2 bytes per number of the log-sum-exp",
        lambda *sizes: residuals(*sizes) - log_sum_exp(*sizes) // 2,
    ),
    ("residuals_in_float32", "4 bytes per element of the residuals", lambda *sizes: 2 * residuals(*sizes)),
    (
        "residuals_of_a_single_layer",
        "one layer instead of all layers",
        lambda width, layers, tokens, policy: residuals(width, 1, tokens, policy),
    ),
]:
    wrong_peak(name, words, residuals=saved)


def saved_before_microbatching(width, length, layers, batch, devices, policy, k):
    whole = lambda width, layers, tokens, policy: residuals(width, layers, batch * length, policy)  # noqa: E731
    return peak(width, length, layers, batch, devices, policy, k, residuals=whole)


def whole_loss(width, length, layers, batch, devices, policy, k):
    working = lambda width, layers, tokens: max(of_layer(width, tokens), of_loss(width, batch * length))  # noqa: E731
    return peak(width, length, layers, batch, devices, policy, k, working=working)


wrong(
    "saves_before_microbatching",
    "impossible",
    "peak bytes",
    "residuals of the whole batch",
    hint="row_of_the_table",
    peak=saved_before_microbatching,
)
wrong(
    "loss_of_the_whole_batch",
    "impossible",
    "peak bytes",
    "a layer or the loss for the whole batch",
    hint="row_of_the_table",
    peak=whole_loss,
)


# Wrong costs.


def whole_weights(width, length, layers, batch, devices, policy, k):
    return (k - 1) * 6 * parameters(width, layers) * 2200


def of_the_layers(width, length, layers, batch, devices, policy, k):
    return sent(12 * layers * width**2, devices, k)


def avoided(width, length, layers, batch, devices, policy, k):
    nothing_saved, flops = (recompute(width, length, layers, batch, devices, p, k) for p in ("full", policy))
    return nothing_saved - flops


def last_matmul(width, length, layers, batch, devices, policy, k):
    return 8 * width**2 * layers * batch * length


def keys_and_values(width, length, layers, batch, devices, policy, k):
    return 0 if "qkv_proj" in NAMES[policy] else 4 * width**2 * layers * batch * length


for name, words, wrong_cost in [
    ("ignores_the_gathers", "link traffic of the further microbatches is missing", recompute),
    ("gathers_of_every_microbatch", "the first microbatch too", lambda *c: recompute(*c) + traffic(*c[:-1], c[-1] + 1)),
    ("bytes_are_flops", "adds bytes to FLOPs", lambda *c: recompute(*c) + traffic(*c) // 2200),
    ("gathers_once", "one of three collectives", lambda *c: recompute(*c) + traffic(*c) // 3),
    ("gathers_and_reduces_once", "two of three collectives", lambda *c: recompute(*c) + traffic(*c) // 3 * 2),
    ("gathers_in_float32", "sends 4 bytes per weight", lambda *c: recompute(*c) + 2 * traffic(*c)),
    ("sends_whole_weights", ": each collective sends the whole weight", lambda *c: recompute(*c) + whole_weights(*c)),
    (
        "sends_the_layers_only",
        "the table is missing from the link traffic",
        lambda *c: recompute(*c) + of_the_layers(*c),
    ),
    ("counts_what_is_avoided", "the FLOPs that the policy avoids", lambda *c: avoided(*c) + traffic(*c)),
    ("recomputes_all_matmuls", "recomputes the layer's last matmul", lambda *c: cost(*c) + last_matmul(*c)),
    ("attention_without_a_mask", "twice the FLOPs of the attention kernel", lambda *c: cost(*c) + attention(*c)),
    ("attention_is_free", "the attention kernel is not recomputed", lambda *c: cost(*c) - attention(*c)),
    ("recompute_of_a_layer", "the recompute of one layer", lambda *c: recompute(*c) // c[2] + traffic(*c)),
    ("recompute_of_a_sequence", "the recompute of one sequence", lambda *c: recompute(*c) // c[3] + traffic(*c)),
    ("recompute_of_a_microbatch", "the recompute of one microbatch", lambda *c: recompute(*c) // c[-1] + traffic(*c)),
    (
        "recompute_once_per_microbatch",
        "the whole batch for each microbatch",
        lambda *c: recompute(*c) * c[-1] + traffic(*c),
    ),
    # qkv_proj is one matmul as wide as the layer.
    ("queries_only", "Which matmuls does this policy recompute", lambda *c: cost(*c) - keys_and_values(*c)),
]:
    wrong(name, "impossible", "FLOPs for", words, hint="parts_of_the_cost", cost=wrong_cost)


# Right numbers, wrong choices.

FEWEST = "fewest microbatches with which a policy fits"
wrong("smallest_peak", "costs more", "takes the smallest peak", hint="compare_neighbours", key=lambda row: row[2])
wrong(
    "fullest", "costs more", "the largest peak that fits", hint="compare_neighbours", key=lambda row: (-row[2], row[3])
)

for name, words, choice in [
    (
        "powers_of_two",
        "always a power of two",
        {"numbers": lambda batch: [k for k in divisors(batch) if k.bit_count() == 1]},
    ),
    ("one_sequence_per_microbatch", "always have one sequence", {"numbers": lambda batch: [batch]}),
    ("single_batch_if_it_fits", FEWEST, {"numbers": lambda batch: [1]}),
    ("two_microbatches_at_least", "than necessary", {"numbers": lambda batch: divisors(batch)[1:] or [1]}),
    ("saves_everything_that_fits", "the least recompute that fits", {"policies": ("minimal_with_context",)}),
]:
    wrong(name, "costs more", words, hint="compare_neighbours", fallback=best, **choice)


@fails_with("costs more", "stays below the capacity", "exactly the capacity", hint="compare_neighbours")
def below_the_capacity(*arguments):
    right = best(*arguments)
    below = best(*arguments[:-1], arguments[-1] - 1)
    return below or right


@fails_with(
    "impossible",
    "it is empty, but 1 configuration fits",
    "May they be equal",
    hint="something_fits",
    where=lambda fits, **_: fits == "one",
)
def strictly_below_if_one_fits(*arguments):
    found = [row for row in rows(arguments[:-1]) if row[2] < arguments[-1]]
    return best(*arguments) if found else ()


@fails_with("impossible", "do not divide the batch into equal parts", "divide the batch", hint="number_of_microbatches")
def any_number_of_microbatches(*arguments):
    def rounded_up(width, length, layers, batch, devices, policy, k):
        tokens = -(-batch // k) * length
        kept = state(width, layers, devices, k) + residuals(width, layers, tokens, policy)
        return kept + larger(width, layers, tokens)

    return cheapest(arguments[:-1], arguments[-1], peak=rounded_up, numbers=lambda batch: range(1, batch + 1))


@fails_with(
    "impossible",
    "bytes, but the capacity is",
    "if no configuration fits",
    hint="nothing_fits",
    where=lambda fits, **_: fits == "none",
)
def smallest_if_nothing_fits(*arguments):
    return best(*arguments) or min(rows(arguments[:-1]), key=lambda row: row[2])


@fails_with(
    "raises",
    "ValueError: min() ",
    "if no configuration fits",
    hint="nothing_fits",
    where=lambda fits, **_: fits == "none",
)
def min_of_nothing(*arguments):
    return min((row for row in rows(arguments[:-1]) if row[2] <= arguments[-1]), key=lambda row: row[3])


@fails_with("wrong type", "returns None", hint="nothing_fits", where=lambda fits, **_: fits == "none")
def none_if_nothing_fits(*arguments):
    return best(*arguments) or None


@fails_with("wrong type", "instead of a tuple", "What should choose_configuration", hint="four_values")
def names_of_values(*arguments):
    found = best(*arguments)
    return dict(zip(("policy", "microbatches", "peak", "cost"), found, strict=False))


@fails_with(
    "impossible", "is not a tuple (policy, microbatches, peak_bytes, cost)", hint="four_values", where=something_fits
)
def choice_without_numbers(*arguments):
    return best(*arguments)[:2]


@fails_with(
    "impossible", "is not a tuple (policy, microbatches, peak_bytes, cost)", hint="four_values", where=something_fits
)
def microbatches_first(*arguments):
    found = best(*arguments)
    return (found[1], found[0], *found[2:]) if found else ()


@fails_with("impossible", "is not one of the page's policies", hint="spelling_of_policies", where=something_fits)
def names_with_spaces(*arguments):
    found = best(*arguments)
    return (found[0].replace("_", " ") + " policy", *found[1:]) if found else ()


# Right except at an end of a range.


@fails_with(
    "raises",
    "ZeroDivisionError",
    "one device",
    hint="call_new_cell_arguments_own",
    where=lambda devices, **_: devices == 1,
)
def one_device(*arguments):
    _ = 1 / (arguments[4] - 1)
    return best(*arguments)


@fails_with(
    "impossible", "it is empty", hint="something_fits", where=lambda batch, fits, **_: batch == 1 and fits != "none"
)
def divisors_below_the_batch(*arguments):
    return best(*arguments) if arguments[3] > 1 else ()


@fails_with(
    "impossible",
    "peak bytes",
    "Compute each row",
    hint="row_of_the_table",
    where=lambda layers, fits, **_: layers == 1 and fits != "none",
)
def one_layer_needs_no_residuals(*arguments):
    """The last layer's values are live anyway."""
    saved = lambda width, layers, *rest: residuals(width, layers, *rest) if layers > 1 else 0  # noqa: E731
    found = best(*arguments)
    return found and (*found[:2], peak(*arguments[:-1], *found[:2], residuals=saved), found[3])


@fails_with("costs more", "than necessary", hint="compare_neighbours", where=lambda fits, **_: fits == "all")
def full_if_everything_fits(*arguments):
    found = rows(arguments[:-1])
    return (
        next(row for row in found if row[0] == "full")
        if max(row[2] for row in found) <= arguments[-1]
        else best(*arguments)
    )


def twice_the_peak(found, only_if):
    return found and (*found[:2], found[2] * (1 + only_if), found[3])


@fails_with(
    "impossible",
    "peak bytes",
    hint="row_of_the_table",
    where=lambda sequence_length, fits, **_: sequence_length == 1024 and fits != "none",
)
def shortest_sequences(*arguments):
    return twice_the_peak(best(*arguments), arguments[1] == 1024)


@fails_with(
    "impossible", "peak bytes", hint="row_of_the_table", where=lambda heads, fits, **_: heads == 8 and fits != "none"
)
def eight_heads(*arguments):
    return twice_the_peak(best(*arguments), arguments[0] == 1024)


@fails_with("impossible", "peak bytes", hint="row_of_the_table")
def right_at_the_ends_of_the_ranges(*arguments):
    """Right if any of the sizes is the smallest or the largest of the page."""
    ends = (1024, 16384), (1024, 65536), (1, 96), (1, 48), (1, 256)
    inside = not any(size in both for size, both in zip(arguments[:-1], ends, strict=True))
    return twice_the_peak(best(*arguments), inside)

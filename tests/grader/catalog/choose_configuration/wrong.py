"""Wrong answers to choose_configuration, each with the finding that must name its mistake."""

import numpy as np
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


def residuals(width, layers, tokens, policy):
    sizes = {"qkv_proj": 6, "out_proj": 2, "mlpwi": 8, "context": 2}
    extra = 4 * (width // 128) if "context" in NAMES[policy] else 0
    return layers * tokens * (width * (2 + sum(sizes[name] for name in NAMES[policy])) + extra)


def of_layer(width, tokens):
    return 40 * tokens * width + 48 * width**2


def of_loss(width, tokens):
    return 8 * TABLE * tokens + 4 * TABLE * width


def peak(width, length, layers, batch, devices, policy, k):
    tokens = batch // k * length
    working = max(of_layer(width, tokens), of_loss(width, tokens))
    return state(width, layers, devices, k) + residuals(width, layers, tokens, policy) + working


def recompute(width, length, layers, batch, devices, policy, k):
    flops = {"qkv_proj": 6 * width**2, "out_proj": 2 * width**2, "mlpwi": 8 * width**2, "context": 2 * length * width}
    return layers * batch * length * sum(flops[name] for name in flops if name not in NAMES[policy])


def traffic(width, length, layers, batch, devices, policy, k):
    return (k - 1) * 6 * parameters(width, layers) // devices * (devices - 1) * 2200


def cost(*configuration):
    return recompute(*configuration) + traffic(*configuration)


def divisors(batch):
    return [k for k in range(1, batch + 1) if batch % k == 0]


def rows(sizes, peak=peak, cost=cost, numbers=divisors, policies=tuple(NAMES)):
    batch = sizes[3]
    return [(p, k, peak(*sizes, p, k), cost(*sizes, p, k)) for k in numbers(batch) for p in policies]


def cheapest(sizes, capacity, peak=peak, key=lambda row: row[3], **changed):
    return min((row for row in rows(sizes, peak, **changed) if row[2] <= capacity), key=key, default=())


def something_fits(fits, **_):
    return fits != "none"


# Wrong peaks.


@fails_with("impossible", "peak bytes", "the logits and their gradient are missing")
def forgets_the_loss(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        return state(width, layers, devices, k) + residuals(width, layers, tokens, policy) + of_layer(width, tokens)

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


@fails_with("impossible", "peak bytes", "the logits and their gradient are missing")
def forgets_the_logits(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        working = max(of_layer(width, tokens), 4 * TABLE * width)
        return state(width, layers, devices, k) + residuals(width, layers, tokens, policy) + working

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


@fails_with("impossible", "peak bytes", "the gradient of the logits is missing")
def forgets_the_gradient_of_the_logits(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        working = max(of_layer(width, tokens), 4 * TABLE * tokens + 4 * TABLE * width)
        return state(width, layers, devices, k) + residuals(width, layers, tokens, policy) + working

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


@fails_with("impossible", "peak bytes", "the backward pass of one layer is missing")
def forgets_the_layer(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        return state(width, layers, devices, k) + residuals(width, layers, tokens, policy) + of_loss(width, tokens)

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


@fails_with("impossible", "peak bytes", "adds the backward pass of a layer to that of the loss")
def adds_layer_and_loss(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        return peak(width, length, layers, batch, devices, policy, k) + min(
            of_layer(width, tokens), of_loss(width, tokens)
        )

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


def with_state(bytes_per_parameter, weights=parameters):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        right = peak(width, length, layers, batch, devices, policy, k) - state(width, layers, devices, k)
        return right + bytes_per_parameter(k) * weights(width, layers) // devices

    return wrong_peak


@fails_with("impossible", "peak bytes", "Adam's two moments are missing")
def forgets_the_optimizer(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_state(lambda k: 8 if k == 1 else 12))


@fails_with("impossible", "peak bytes", "one of Adam's two moments")
def momentum_instead_of_adam(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_state(lambda k: 12 if k == 1 else 16))


@fails_with("impossible", "peak bytes", "parameters, moments and gradients are missing")
def activations_only(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_state(lambda k: 0))


@fails_with("impossible", "peak bytes", "the sum of the gradients is missing")
def sixteen_bytes_per_parameter(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_state(lambda k: 16))


@fails_with("impossible", "peak bytes", "only one microbatch")
def twenty_bytes_per_parameter(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_state(lambda k: 20))


@fails_with("impossible", "peak bytes", "the table is missing from the parameters")
def layers_are_all_parameters(*arguments):
    weights = lambda width, layers: 12 * layers * width**2  # noqa: E731
    return cheapest(arguments[:-1], arguments[-1], with_state(lambda k: 16 if k == 1 else 20, weights))


@fails_with("impossible", "peak bytes", "not sharded across the devices")
def state_on_every_device(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        right = peak(width, length, layers, batch, devices, policy, k)
        return right - state(width, layers, devices, k) + state(width, layers, 1, k)

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


@fails_with("impossible", "peak bytes", "residuals of the whole batch")
def saves_before_microbatching(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        working = max(of_layer(width, tokens), of_loss(width, tokens))
        return state(width, layers, devices, k) + residuals(width, layers, batch * length, policy) + working

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


@fails_with("impossible", "peak bytes", "a layer or the loss for the whole batch")
def loss_of_the_whole_batch(*arguments):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        working = max(of_layer(width, tokens), of_loss(width, batch * length))
        return state(width, layers, devices, k) + residuals(width, layers, tokens, policy) + working

    return cheapest(arguments[:-1], arguments[-1], wrong_peak)


def with_residuals(wrong):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        right = peak(width, length, layers, batch, devices, policy, k) - residuals(width, layers, tokens, policy)
        return right + wrong(width, layers, tokens, policy)

    return wrong_peak


@fails_with("impossible", "peak bytes", "the inputs of the layers are missing")
def forgets_the_inputs(*arguments):
    wrong = with_residuals(
        lambda h, layers, tokens, policy: residuals(h, layers, tokens, policy) - 2 * layers * tokens * h
    )
    return cheapest(arguments[:-1], arguments[-1], wrong)


def log_sum_exp(width, layers, tokens, policy):
    return 4 * (width // 128) * layers * tokens if "context" in NAMES[policy] else 0


@fails_with("impossible", "peak bytes", "the log-sum-exp of the attention kernel is missing")
def forgets_the_log_sum_exp(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_residuals(lambda *a: residuals(*a) - log_sum_exp(*a)))


@fails_with("impossible", "peak bytes", "2 bytes per number of the log-sum-exp")
def log_sum_exp_in_bfloat16(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_residuals(lambda *a: residuals(*a) - log_sum_exp(*a) // 2))


@fails_with("impossible", "peak bytes", "4 bytes per element of the residuals")
def residuals_in_float32(*arguments):
    return cheapest(arguments[:-1], arguments[-1], with_residuals(lambda *a: 2 * residuals(*a)))


@fails_with("impossible", "peak bytes", "one layer instead of all layers")
def residuals_of_a_single_layer(*arguments):
    wrong = with_residuals(lambda width, layers, tokens, policy: residuals(width, 1, tokens, policy))
    return cheapest(arguments[:-1], arguments[-1], wrong)


def with_working_memory(wrong):
    def wrong_peak(width, length, layers, batch, devices, policy, k):
        tokens = batch // k * length
        right = state(width, layers, devices, k) + residuals(width, layers, tokens, policy)
        return right + wrong(width, layers, tokens)

    return wrong_peak


@fails_with("impossible", "peak bytes", "backward passes of all layers at the same time")
def all_layers_at_once(*arguments):
    wrong = with_working_memory(lambda h, layers, tokens: max(layers * of_layer(h, tokens), of_loss(h, tokens)))
    return cheapest(arguments[:-1], arguments[-1], wrong)


@fails_with("impossible", "peak bytes", "gathered weights, of a layer or of the table, and their gradients")
def forgets_the_gathered_weights(*arguments):
    wrong = with_working_memory(lambda h, layers, tokens: max(40 * tokens * h, 8 * TABLE * tokens))
    return cheapest(arguments[:-1], arguments[-1], wrong)


@fails_with("impossible", "peak bytes", "gathered weights, of a layer or of the table, and their gradients")
def forgets_the_gathered_table(*arguments):
    wrong = with_working_memory(lambda h, layers, tokens: max(of_layer(h, tokens), 8 * TABLE * tokens))
    return cheapest(arguments[:-1], arguments[-1], wrong)


@fails_with("impossible", "peak bytes", "Compute each row")
def without_the_gradient_of_the_hidden_values(*arguments):
    wrong = with_working_memory(lambda h, layers, tokens: max(of_layer(h, tokens) - 8 * tokens * h, of_loss(h, tokens)))
    return cheapest(arguments[:-1], arguments[-1], wrong)


@fails_with("impossible", "peak bytes", "Compute each row")
def one_byte_too_many(*arguments):
    best = cheapest(arguments[:-1], arguments[-1])
    return best and (*best[:2], best[2] + 1, best[3])


@fails_with("impossible", "peak bytes", "Compute each row")
def peak_in_float32(*arguments):
    best = cheapest(arguments[:-1], arguments[-1])
    return best and (*best[:2], float(np.nextafter(np.float32(best[2]), np.float32(np.inf))), best[3])


# Wrong costs.


@fails_with("impossible", "FLOPs for", "Which matmuls")
def one_flop_too_many(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=lambda *configuration: cost(*configuration) + 1)


@fails_with("impossible", "FLOPs for", "link traffic of the further microbatches is missing")
def ignores_the_gathers(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=recompute)


@fails_with("impossible", "FLOPs for", "the first microbatch too")
def gathers_of_every_microbatch(*arguments):
    def wrong_cost(width, length, layers, batch, devices, policy, k):
        return recompute(width, length, layers, batch, devices, policy, k) + traffic(
            width, length, layers, batch, devices, policy, k + 1
        )

    return cheapest(arguments[:-1], arguments[-1], cost=wrong_cost)


def with_traffic(wrong):
    def wrong_cost(*configuration):
        return recompute(*configuration) + wrong(traffic(*configuration), *configuration)

    return wrong_cost


@fails_with("impossible", "FLOPs for", "adds bytes to FLOPs")
def bytes_are_flops(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=with_traffic(lambda sent, *_: sent // 2200))


@fails_with("impossible", "FLOPs for", "one of three collectives")
def gathers_once(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=with_traffic(lambda sent, *_: sent // 3))


@fails_with("impossible", "FLOPs for", "two of three collectives")
def gathers_and_reduces_once(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=with_traffic(lambda sent, *_: sent // 3 * 2))


@fails_with("impossible", "FLOPs for", "sends 4 bytes per weight")
def gathers_in_float32(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=with_traffic(lambda sent, *_: 2 * sent))


@fails_with("impossible", "FLOPs for", ": each collective sends the whole weight")
def sends_whole_weights(*arguments):
    def wrong(sent, width, length, layers, batch, devices, policy, k):
        return (k - 1) * 6 * parameters(width, layers) * 2200

    return cheapest(arguments[:-1], arguments[-1], cost=with_traffic(wrong))


@fails_with("impossible", "FLOPs for", "the table is missing from the link traffic")
def sends_the_layers_only(*arguments):
    def wrong(sent, width, length, layers, batch, devices, policy, k):
        return (k - 1) * 72 * layers * width**2 // devices * (devices - 1) * 2200

    return cheapest(arguments[:-1], arguments[-1], cost=with_traffic(wrong))


def with_recompute(wrong):
    def wrong_cost(*configuration):
        return traffic(*configuration) + wrong(recompute(*configuration), *configuration)

    return wrong_cost


@fails_with("impossible", "FLOPs for", "the FLOPs that the policy avoids")
def counts_what_is_avoided(*arguments):
    def wrong(flops, width, length, layers, batch, devices, policy, k):
        return recompute(width, length, layers, batch, devices, "full", k) - flops

    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(wrong))


@fails_with("impossible", "FLOPs for", "recomputes the layer's last matmul")
def recomputes_all_matmuls(*arguments):
    def wrong(flops, width, length, layers, batch, devices, policy, k):
        return flops + 8 * width**2 * layers * batch * length

    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(wrong))


def attention(width, length, layers, batch, policy):
    return 0 if "context" in NAMES[policy] else 2 * length * width * layers * batch * length


@fails_with("impossible", "FLOPs for", "twice the FLOPs of the attention kernel")
def attention_without_a_mask(*arguments):
    def wrong(flops, width, length, layers, batch, devices, policy, k):
        return flops + attention(width, length, layers, batch, policy)

    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(wrong))


@fails_with("impossible", "FLOPs for", "the attention kernel is not recomputed")
def attention_is_free(*arguments):
    def wrong(flops, width, length, layers, batch, devices, policy, k):
        return flops - attention(width, length, layers, batch, policy)

    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(wrong))


@fails_with("impossible", "FLOPs for", "the recompute of one layer")
def recompute_of_a_layer(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(lambda flops, h, s, layers, *_: flops // layers))


@fails_with("impossible", "FLOPs for", "the recompute of one sequence")
def recompute_of_a_sequence(*arguments):
    wrong = with_recompute(lambda flops, h, s, layers, batch, *_: flops // batch)
    return cheapest(arguments[:-1], arguments[-1], cost=wrong)


@fails_with("impossible", "FLOPs for", "the recompute of one microbatch")
def recompute_of_a_microbatch(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(lambda flops, *rest: flops // rest[-1]))


@fails_with("impossible", "FLOPs for", "the whole batch for each microbatch")
def recompute_once_per_microbatch(*arguments):
    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(lambda flops, *rest: flops * rest[-1]))


@fails_with("impossible", "FLOPs for", "Which matmuls does this policy recompute")
def queries_only(*arguments):
    """qkv_proj is one matmul as wide as the layer."""

    def wrong(flops, width, length, layers, batch, devices, policy, k):
        left = 0 if "qkv_proj" in NAMES[policy] else 4 * width**2
        return flops - left * layers * batch * length

    return cheapest(arguments[:-1], arguments[-1], cost=with_recompute(wrong))


# Right numbers, wrong choices.


@fails_with("costs more", "fewest microbatches with which a policy fits", "a further microbatch")
def as_few_microbatches_as_fit(*arguments):
    return cheapest(arguments[:-1], arguments[-1], key=lambda row: (row[1], row[3]))


@fails_with("costs more", "the least recompute that fits")
def as_little_recompute_as_fits(*arguments):
    sizes = arguments[:-1]
    return cheapest(sizes, arguments[-1], key=lambda row: (recompute(*sizes, *row[:2]), row[1]))


@fails_with("costs more", "takes the smallest peak")
def smallest_peak(*arguments):
    return cheapest(arguments[:-1], arguments[-1], key=lambda row: row[2])


@fails_with("costs more", "the largest peak that fits")
def fullest(*arguments):
    return cheapest(arguments[:-1], arguments[-1], key=lambda row: (-row[2], row[3]))


@fails_with("costs more", 'its policy is always `"full"`')
def never_saves(*arguments):
    return cheapest(arguments[:-1], arguments[-1], policies=("full",))


@fails_with("costs more", "stays below the capacity", "exactly the capacity")
def below_the_capacity(*arguments):
    right = best(*arguments)
    below = best(*arguments[:-1], arguments[-1] - 1)
    return below or right


@fails_with(
    "impossible", "it is empty, but 1 configuration fits", "May they be equal", where=lambda fits, **_: fits == "one"
)
def strictly_below_if_one_fits(*arguments):
    found = [row for row in rows(arguments[:-1]) if row[2] < arguments[-1]]
    return best(*arguments) if found else ()


@fails_with("costs more", "always a power of two")
def powers_of_two(*arguments):
    numbers = lambda batch: [k for k in divisors(batch) if k.bit_count() == 1]  # noqa: E731
    return cheapest(arguments[:-1], arguments[-1], numbers=numbers) or best(*arguments)


@fails_with("costs more", "always have one sequence")
def one_sequence_per_microbatch(*arguments):
    return cheapest(arguments[:-1], arguments[-1], numbers=lambda batch: [batch]) or best(*arguments)


@fails_with("costs more", "fewest microbatches with which a policy fits")
def single_batch_if_it_fits(*arguments):
    return cheapest(arguments[:-1], arguments[-1], numbers=lambda batch: [1]) or best(*arguments)


@fails_with("costs more", "than necessary")
def two_microbatches_at_least(*arguments):
    found = cheapest(arguments[:-1], arguments[-1], numbers=lambda batch: divisors(batch)[1:] or [1])
    return found or best(*arguments)


@fails_with("costs more", "the least recompute that fits")
def saves_everything_that_fits(*arguments):
    found = cheapest(arguments[:-1], arguments[-1], policies=("minimal_with_context",))
    return found or best(*arguments)


@fails_with("costs more", "Does your answer compute the peak and the cost of each")
def rule_of_thumb(width, sequence_length, layers, batch, devices, capacity):
    """Take `context` first for long sequences, and the projections first for short ones."""
    names = [name for name in NAMES if ("context" in NAMES[name]) == (sequence_length > width)]
    sizes = width, sequence_length, layers, batch, devices
    return cheapest(sizes, capacity, policies=names) or best(*sizes, capacity)


@fails_with("impossible", "do not divide the batch into equal parts", "divide the batch")
def any_number_of_microbatches(*arguments):
    def rounded_up(width, length, layers, batch, devices, policy, k):
        tokens = -(-batch // k) * length
        working = max(of_layer(width, tokens), of_loss(width, tokens))
        return state(width, layers, devices, k) + residuals(width, layers, tokens, policy) + working

    return cheapest(arguments[:-1], arguments[-1], rounded_up, numbers=lambda batch: range(1, batch + 1))


@fails_with(
    "impossible", "bytes, but the capacity is", "if no configuration fits", where=lambda fits, **_: fits == "none"
)
def smallest_if_nothing_fits(*arguments):
    return best(*arguments) or min(rows(arguments[:-1]), key=lambda row: row[2])


@fails_with("raises", "ValueError: min() ", "if no configuration fits", where=lambda fits, **_: fits == "none")
def min_of_nothing(*arguments):
    return min((row for row in rows(arguments[:-1]) if row[2] <= arguments[-1]), key=lambda row: row[3])


@fails_with("wrong type", "returns None", where=lambda fits, **_: fits == "none")
def none_if_nothing_fits(*arguments):
    return best(*arguments) or None


@fails_with("wrong type", "instead of a tuple", "What should choose_configuration")
def names_of_values(*arguments):
    found = best(*arguments)
    return dict(zip(("policy", "microbatches", "peak", "cost"), found, strict=False))


@fails_with("impossible", "is not a tuple (policy, microbatches, peak_bytes, cost)", where=something_fits)
def choice_without_numbers(*arguments):
    return best(*arguments)[:2]


@fails_with("impossible", "is not a tuple (policy, microbatches, peak_bytes, cost)", where=something_fits)
def microbatches_first(*arguments):
    found = best(*arguments)
    return (found[1], found[0], *found[2:]) if found else ()


@fails_with("impossible", "is not one of the page's policies", where=something_fits)
def names_with_spaces(*arguments):
    found = best(*arguments)
    return (found[0].replace("_", " ") + " policy", *found[1:]) if found else ()


@fails_with("impossible", "peak bytes", where=something_fits)
def gibibytes(*arguments):
    found = best(*arguments)
    return (*found[:2], found[2] / 2**30, found[3]) if found else ()


# Right except at an end of a range.


@fails_with("raises", "ZeroDivisionError", "one device", where=lambda devices, **_: devices == 1)
def one_device(*arguments):
    _ = 1 / (arguments[4] - 1)
    return best(*arguments)


@fails_with("impossible", "it is empty", where=lambda batch, fits, **_: batch == 1 and fits != "none")
def divisors_below_the_batch(*arguments):
    return best(*arguments) if arguments[3] > 1 else ()


@fails_with(
    "impossible", "peak bytes", "Compute each row", where=lambda layers, fits, **_: layers == 1 and fits != "none"
)
def one_layer_needs_no_residuals(*arguments):
    """The last layer's values are live anyway."""
    wrong = with_residuals(lambda h, layers, tokens, policy: residuals(h, layers, tokens, policy) if layers > 1 else 0)
    found = best(*arguments)
    return (*found[:2], wrong(*arguments[:-1], *found[:2]), found[3]) if found else ()


@fails_with(
    "impossible", "peak bytes", where=lambda sequence_length, fits, **_: sequence_length == 1024 and fits != "none"
)
def shortest_sequences(*arguments):
    found = best(*arguments)
    return (*found[:2], found[2] * (1 + (arguments[1] == 1024)), found[3]) if found else ()


@fails_with("impossible", "peak bytes", where=lambda heads, fits, **_: heads == 8 and fits != "none")
def eight_heads(*arguments):
    found = best(*arguments)
    return (*found[:2], found[2] * (1 + (arguments[0] == 1024)), found[3]) if found else ()


@fails_with("costs more", "than necessary", where=lambda fits, **_: fits == "all")
def full_if_everything_fits(*arguments):
    found = rows(arguments[:-1])
    return (
        next(row for row in found if row[0] == "full")
        if max(row[2] for row in found) <= arguments[-1]
        else best(*arguments)
    )


@fails_with("impossible", "peak bytes")
def right_at_the_ends_of_the_ranges(*arguments):
    """Right if any of the sizes is the smallest or the largest of the page."""
    ends = (1024, 16384), (1024, 65536), (1, 96), (1, 48), (1, 256)
    found = best(*arguments)
    inside = not any(size in both for size, both in zip(arguments[:-1], ends, strict=True))
    return (*found[:2], found[2] * (1 + inside), found[3]) if found else ()

"""Wrong answers to either, each with the finding that must name its mistake."""

import jax
from jax.ad_checkpoint import Offloadable, Recompute, Saveable
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
BOOLEANS, PRODUCTS, OFFLOADED, FIRST, SECOND, ELSEWHERE = (
    "p1 saves hidden and squares, p2 saves squares and logits",
    "p1 saves sines, p2 saves matmuls",
    "p1 offloads matmuls, p2 saves sines",
    "p1 offloads hidden and saves squares, p2 saves hidden and logits",
    "p1 saves hidden, p2 offloads hidden and logits",
    "p1 offloads hidden and p2 offloads logits, both to the device",
)


def is_yes(said):
    return said is True or said is Saveable or isinstance(said, Offloadable)


@fails_with("not saved", "hidden, f32[", "logits, f32[", "What does each of the two policies return", cases=(BOOLEANS,))
def both_must_say_yes(p1, p2):
    return lambda *a, **k: p1(*a, **k) and p2(*a, **k)


@fails_with("not saved", "squares, f32[", cases=(BOOLEANS,))
def exactly_one_must_say_yes(p1, p2):
    return lambda *a, **k: is_yes(p1(*a, **k)) != is_yes(p2(*a, **k))


@fails_with("not saved", "sines, f32[", "Which answers does yours count as a yes", cases=(OFFLOADED,))
def or_of_what_they_say(p1, p2):
    return lambda *a, **k: p1(*a, **k) or p2(*a, **k)


@fails_with("not saved", "logits, f32[", cases=(BOOLEANS,))
def or_of_the_policies(p1, p2):
    return p1 or p2


@fails_with("not saved", "hidden, f32[", cases=(BOOLEANS,))
def and_of_the_policies(p1, p2):
    return p1 and p2


@fails_with("wrong memory", "hidden, f32[", "hidden in pinned_host memory", "Print what each", cases=(FIRST,))
def the_second_wins(p1, p2):
    def policy(*a, **k):
        second = p2(*a, **k)
        return second if is_yes(second) else p1(*a, **k)

    return policy


@fails_with("wrong memory", "hidden, f32[", "hidden in pinned_host memory", cases=(FIRST,))
def the_device_wins(p1, p2):
    def policy(*a, **k):
        said = p1(*a, **k), p2(*a, **k)
        saved = any(one is True or one is Saveable for one in said)
        return saved or next((one for one in said if is_yes(one)), False)

    return policy


@fails_with("wrong memory", "in pinned_host memory", "hidden in device memory", cases=(SECOND,))
def the_host_wins(p1, p2):
    def policy(*a, **k):
        said = p1(*a, **k), p2(*a, **k)
        offloaded = next((one for one in said if isinstance(one, Offloadable)), None)
        return offloaded or any(is_yes(one) for one in said)

    return policy


@fails_with("wrong memory", "logits, f32[", "logits in pinned_host memory", cases=(SECOND,))
def the_seconds_offload_lost(p1, p2):
    def policy(*a, **k):
        first = p1(*a, **k)
        return first if is_yes(first) else is_yes(p2(*a, **k))

    return policy


@fails_with("wrong memory", "hidden, f32[", "hidden in pinned_host memory", cases=(OFFLOADED,))
def the_firsts_offload_lost(p1, p2):
    return lambda *a, **k: True if is_yes(p1(*a, **k)) else p2(*a, **k)


@fails_with("not saved", "hidden, f32[", "logits, f32[", "return an Offloadable unchanged", cases=(OFFLOADED,))
def offload_is_the_class(p1, p2):
    def policy(*a, **k):
        said = p1(*a, **k)
        return said if any(said is yes for yes in (True, Saveable, Offloadable)) else p2(*a, **k)

    return policy


@fails_with("wrong memory", "hidden, f32[", "hidden in device memory", "what does your policy make", cases=(ELSEWHERE,))
def the_firsts_offload_made_anew(p1, p2):
    def policy(*a, **k):
        said = p1(*a, **k)
        if isinstance(said, Offloadable):
            return Offloadable("device", "pinned_host")
        return said if is_yes(said) else p2(*a, **k)

    return policy


@fails_with("wrong memory", "logits, f32[", "logits in device memory", cases=(ELSEWHERE,))
def the_seconds_offload_made_anew(p1, p2):
    def policy(*a, **k):
        first, second = p1(*a, **k), p2(*a, **k)
        if is_yes(first):
            return first
        return Offloadable("device", "pinned_host") if isinstance(second, Offloadable) else second

    return policy


@fails_with("not saved", "hidden, f32[", "logits, f32[", cases=(OFFLOADED,))
def offload_is_no_yes(p1, p2):
    return lambda *a, **k: any(p(*a, **k) in (True, Saveable) for p in (p1, p2))


@fails_with("not saved", "squares, f32[", cases=(FIRST,))
def saveable_is_no_yes(p1, p2):
    def policy(*a, **k):
        for said in (p1(*a, **k), p2(*a, **k)):
            if said is True or isinstance(said, Offloadable):
                return said
        return False

    return policy


@fails_with("not saved", "hidden, f32[", "logits, f32[", cases=(PRODUCTS,))
def the_second_for_names_only(p1, p2):
    def policy(operation, *operands, **parameters):
        first = p1(operation, *operands, **parameters)
        return first if is_yes(first) else operation.name == "name" and p2(operation, *operands, **parameters)

    return policy


@fails_with("not saved", "hidden, f32[", "logits, f32[", cases=(OFFLOADED,))
def the_first_for_names_only(p1, p2):
    def policy(operation, *operands, **parameters):
        first = operation.name == "name" and p1(operation, *operands, **parameters)
        return first if is_yes(first) else p2(operation, *operands, **parameters)

    return policy


@fails_with("raises", "pass all of them on", cases=(PRODUCTS,))
def operands_not_handed_on(p1, p2):
    def policy(operation, *operands, **parameters):
        first = p1(operation, **parameters)
        return first if is_yes(first) else p2(operation, **parameters)

    return policy


@fails_with("also saved", "sines, f32[", cases=(BOOLEANS,))
def every_name(p1, p2):
    return lambda operation, *_, **__: operation.name == "name"


@fails_with("raises", "should be a boolean", "only True and False", cases=(OFFLOADED, FIRST, SECOND, ELSEWHERE))
def the_helper_for_booleans(p1, p2):
    return jax.checkpoint_policies.save_from_both_policies(p1, p2)


@fails_with("raises", "remat policy should be", "neither policy says yes")
def says_nothing_for_no(p1, p2):
    def policy(*a, **k):
        for said in (p1(*a, **k), p2(*a, **k)):
            if is_yes(said):
                return said

    return policy


@fails_with("raises", "unsupported operand", "neither True nor False", cases=(OFFLOADED, FIRST, SECOND, ELSEWHERE))
def bitwise_or(p1, p2):
    return lambda *a, **k: p1(*a, **k) | p2(*a, **k)


@fails_with("raises", "argument", "pass all of them on")
def parameters_not_taken(p1, p2):
    return lambda operation, *operands: p1(operation, *operands)


@fails_with("wrong type", "returns None", "What should either(p1, p2) return?")
def returns_no_policy(p1, p2):
    def policy(*a, **k):
        first = p1(*a, **k)
        return p2(*a, **k) if first in (False, Recompute) else first


@fails_with("wrong type", "returns a bool, not a function", "What should either(p1, p2) return?")
def returns_an_answer(p1, p2):
    return p1 is not None or p2 is not None


def joined(p1, p2):
    return lambda *a, **k: p1(*a, **k) if is_yes(p1(*a, **k)) else p2(*a, **k)


# What follows is right for the traced pairs of policies.


@fails_with("wrong value", "no, recompute it, about ", "yes, save it")
def names_of_the_page_only(p1, p2):
    def policy(operation, *operands, **parameters):
        if operation.name == "name" and parameters["name"] not in ("hidden", "logits", "squares", "sines"):
            return False
        return joined(p1, p2)(operation, *operands, **parameters)

    return policy


@fails_with("wrong value", "the policy that the page asks for.", ", about ", "of f")
def float32_only(p1, p2):
    def policy(operation, *operands, **parameters):
        return operands[0].dtype == "float32" and joined(p1, p2)(operation, *operands, **parameters)

    return policy


@fails_with("wrong value", "of 64 questions", "returns Offloadable")
def offloads_from_the_device_whatever_it_is_told(p1, p2):
    def policy(*a, **k):
        said = joined(p1, p2)(*a, **k)
        return Offloadable("device", said.dst) if isinstance(said, Offloadable) else said

    return policy


@fails_with("wrong value", "p1 returns Offloadable", "p2 returns Offloadable")
def the_second_wins_where_both_offload(p1, p2):
    def policy(*a, **k):
        said = p1(*a, **k), p2(*a, **k)
        return said[1] if all(isinstance(one, Offloadable) for one in said) else joined(p1, p2)(*a, **k)

    return policy


@fails_with("wrong value", "p1 returns Saveable, p2 returns Offloadable")
def saveable_gives_way_to_an_offload(p1, p2):
    def policy(*a, **k):
        said = p1(*a, **k), p2(*a, **k)
        return said[1] if said[0] is Saveable and is_yes(said[1]) else joined(p1, p2)(*a, **k)

    return policy


@fails_with("wrong value", ", about ")
def remembers_what_was_said_about_a_name(p1, p2):
    said = {}

    def policy(operation, *operands, **parameters):
        key = operation.name, parameters.get("name")
        if key not in said:
            said[key] = joined(p1, p2)(operation, *operands, **parameters)
        return said[key]

    return policy


@fails_with("raises", "passes other arguments", "pass all of them on")
def two_operands_handed_on(p1, p2):
    def policy(operation, *operands, **parameters):
        first = p1(operation, *operands, **parameters)
        return first if is_yes(first) else p2(operation, *operands[:2], **parameters)

    return policy


@fails_with("wrong value", ", then no, recompute it")
def tires(p1, p2):
    asked = []

    def policy(*a, **k):
        asked.append(a)
        return len(asked) < 100 and joined(p1, p2)(*a, **k)

    return policy


@fails_with("wrong value", "returns Offloadable", "dst='pinned_host'")
def always_to_the_same_place(p1, p2):
    def policy(*a, **k):
        said = joined(p1, p2)(*a, **k)
        elsewhere = isinstance(said, Offloadable) and said.dst != "device"
        return Offloadable("device", "pinned_host") if elsewhere else said

    return policy


@fails_with("argument order", "(p2, p1)", "In which order")
def policies_swapped(p2, p1):
    return lambda *a, **k: p1(*a, **k) if is_yes(p1(*a, **k)) else p2(*a, **k)


@fails_with("wrong value", "about 'hidden' of float32[]", "which is asked first")
def the_second_not_asked_about_single_numbers(p1, p2):
    return lambda primitive, *a, **k: p1(primitive, *a, **k) if a[0].ndim == 0 else joined(p1, p2)(primitive, *a, **k)


@fails_with("wrong value", "returns Offloadable", "yes, save it")
def an_offload_to_where_it_is_is_none(p1, p2):
    def policy(*a, **k):
        said = joined(p1, p2)(*a, **k)
        return True if isinstance(said, Offloadable) and said.src == said.dst else said

    return policy


@fails_with("wrong value", "about 'squares' of")
def the_second_not_asked_about_squares(p1, p2):
    def policy(primitive, *a, **k):
        said = joined(p1, p2)(primitive, *a, **k)
        return said if k.get("name") != "squares" or is_yes(p1(primitive, *a, **k)) else False

    return policy


@fails_with("wrong value", "returns Offloadable", "dst='pinned_host'")
def the_seconds_offload_to_the_same_place(p1, p2):
    def policy(*a, **k):
        first, second = p1(*a, **k), p2(*a, **k)
        both = isinstance(first, Offloadable) and isinstance(second, Offloadable)
        return second if both and first.dst == second.dst else joined(p1, p2)(*a, **k)

    return policy


@fails_with("wrong value", "no, recompute it, about '")
def the_second_not_asked_about_long_names(p1, p2):
    def policy(*a, **k):
        return p1(*a, **k) if len(k.get("name", "")) > 12 else joined(p1, p2)(*a, **k)

    return policy

"""Each finding occurs only for functions with the fault, and suggested names have the stated effects."""

import functools

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import array
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import checkify
from sampling import few

from rematscope import (
    Lint,
    LintKind,
    PlanError,
    TraceError,
    explore,
    lint,
    liveness,
    measure,
    plan,
    recompute_graph,
    rewrite,
)
from rematscope.choices.enumeration import every_choice
from rematscope.render.units import amount_text, bytes_text
from rematscope.render.view import plain_text

policies = jax.checkpoint_policies


ARGS = array(16, 8), array(8, 8), array(8, 8)


def kinds(f, *args):
    return [finding.kind for finding in lint(f, *args or ARGS).findings]


# The function that the faults below modify: two matmuls with a nonlinearity between them, well named.


def sound(x, u, v):
    return jnp.sin(jnp.tanh(checkpoint_name(x @ u, "h")) @ v)


def output_named(activation):
    return lambda x, u, v: jnp.sin(checkpoint_name(activation(x @ u), "h") @ v)


def input_named(activation):
    return lambda x, u, v: jnp.sin(activation(checkpoint_name(x @ u, "h")) @ v)


def discarded(x, u, v):
    h = x @ u
    checkpoint_name(h, "h")
    return jnp.sin(jnp.tanh(h) @ v)


def before_additions_only(x, u, v):
    return checkpoint_name(jnp.tanh(x @ u) @ v, "h") + x


def used_unnamed(x, u, v):
    h = x @ u
    return jnp.sin(h * jnp.tanh(checkpoint_name(h, "h")) @ v)


def argument(x, u, v):
    return jnp.sin(jnp.tanh(checkpoint_name(x, "h") @ u) @ v)


def transposed(x, u, v):
    return jnp.sin(jnp.tanh(x @ checkpoint_name(u.T, "h")) @ v)


def outside(x, u, v):
    return jax.checkpoint(lambda h: jnp.sin(jnp.tanh(h) @ v))(checkpoint_name(x @ u, "h"))


def goes_in(x, u, v):
    return jax.checkpoint(lambda h: jnp.sin(jnp.tanh(checkpoint_name(h, "h")) @ v))(x @ u)


def in_a_branch(x, u, v):
    return lax.cond(x.sum() > 0, lambda x: sound(x, u, v), jnp.sin, x)


@jax.custom_vjp
def with_a_rule(x, u):
    return jnp.tanh(checkpoint_name(x @ u, "h"))


def forward(x, u):
    h = checkpoint_name(x @ u, "rule")
    return jnp.tanh(h), (x, u, h)


def backward(saved, ct):
    x, u, h = saved
    ct = ct * (1 - jnp.tanh(h) ** 2)
    return ct @ u.T, x.T @ ct


with_a_rule.defvjp(forward, backward)


NAMES = {
    "discarded": ("discarded", discarded, "h = checkpoint_name(h, 'h')"),
    "after tanh": ("own result", output_named(jnp.tanh), "takes 512 B but avoids no recompute"),
    "after exp": ("own result", output_named(jnp.exp), "derivative of exp on test_lint.py"),
    "after softmax": ("own result", output_named(jax.nn.softmax), "derivative of exp on test_lint.py"),
    "after relu": ("too late", output_named(jax.nn.relu), "dot_general on test_lint.py"),
    "after gelu": ("too late", output_named(jax.nn.gelu), "Name the result of a matmul on test_lint.py"),
    "before additions": ("not needed", before_additions_only, "derivative of add on test_lint.py"),
    "used unnamed": ("used unnamed", used_unnamed, "mul on test_lint.py"),
    "argument": ("argument", argument, "names an argument, which is saved anyway"),
    "goes in": ("argument", goes_in, "the input of the checkpoint on test_lint.py"),
    "only moved": ("free", transposed, "moving data only"),
    "outside": ("outside", outside, "is not inside a checkpoint"),
    "branch": ("barred", in_a_branch, "is inside a branch"),
    "rule": ("custom rule", lambda x, u, v: jnp.sin(with_a_rule(x, u) @ v), "the rule's forward function"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_without_effect_is_found(case):
    kind, function, words = NAMES[case]
    (finding,) = lint(function, *ARGS).findings
    assert (finding.kind, finding.name, finding.source.place) == (kind, "h", "test_lint.py")
    assert words in finding.text and finding.text.startswith(f"'h' on {finding.source.where} ")


@pytest.mark.parametrize("activation", [jnp.tanh, jnp.exp, jax.nn.softmax, jax.nn.relu, jax.nn.gelu])
def test_a_name_that_helps_has_no_finding(activation):
    assert kinds(input_named(activation)) == []


def test_a_name_in_a_function_and_in_its_forward_rule_has_no_finding():
    """This is the structure of JAX's splash attention: the forward rule calls the function's implementation."""
    named = jax.custom_vjp(lambda x, u: forward(x, u)[0])
    named.defvjp(forward, backward)
    assert kinds(lambda x, u, v: jnp.sin(named(x, u) @ v)) == []


def test_only_the_line_that_is_wrong_is_found():
    """One name for two values, only one of which helps, and a name in every layer, the last of which is unused."""

    def two(x, u, v):
        h = checkpoint_name(x @ u, "h")
        return checkpoint_name(jnp.tanh(h) @ v, "h") + x

    (finding,) = lint(two, *ARGS).findings
    assert finding.kind == "not needed" and "Remove it: 'h', from which" in finding.text

    def layers(x, u, v):
        for w in (u, v):
            x = checkpoint_name(jnp.sin(x) @ w, "layer")
        return x

    assert kinds(layers) == []


@pytest.mark.parametrize("function", [sound, *(function for _, function, _ in NAMES.values())])
def test_a_name_has_no_finding_if_some_choice_gains_by_it(function):
    """A name without a finding avoids recompute in addition to some others. A name that "spares none" never does."""
    graph = recompute_graph(function, *ARGS)
    found = {finding.name: finding for finding in lint(function, *ARGS).findings}
    _, cost = every_choice(graph)
    for i, name in enumerate(graph.names):
        without = [c for c in range(len(cost)) if not c >> i & 1]
        helps = any(cost[c | 1 << i] < cost[c] for c in without)
        if name not in found or "spares none" in found[name].text:
            assert helps == (name not in found)


# Policies and checkpoints


def saving(policy, f=sound, **how):
    return jax.checkpoint(f, policy=policy, **how)


def batched(policy):
    return jax.vmap(saving(policy)), (array(3, 16, 8), array(3, 8, 8), array(3, 8, 8))


def layers(around=lambda f: f, each=lambda f: f):
    def net(x, u, v):
        for _ in range(4):
            x = each(sound)(x, u, v)
        return x

    return around(net)


def scanned(around=lambda f: f, each=lambda f: f):
    return around(lambda x, u, v: lax.scan(lambda x, _: (each(sound)(x, u, v), None), x, None, length=5)[0])


without_barrier = jax.checkpoint(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w), prevent_cse=False)


saving_dots = jax.checkpoint(lambda x, w: jnp.sin(jnp.sin(x @ w) @ w), prevent_cse=False, policy=policies.dots_saveable)


def scanned_without_barrier(unroll, reduced=jnp.sum):
    layer = jax.checkpoint(lambda c, w: (jnp.tanh(jnp.sin(c @ w) @ w.T), None), prevent_cse=False)
    return lambda w, x: reduced(lax.scan(layer, x, w, unroll=unroll)[0])


SCANNED = array(6, 16, 16), array(8, 16)


def in_another(around, inside):
    return around(lambda x, u, v: inside(sound)(x, u, v) * 2)


def dots(f):
    return saving(policies.dots_saveable, f)


CHECKPOINTS = {
    "typo": ("unknown name", saving(policies.save_only_these_names("H")), ARGS, "Did you mean 'h'?"),
    "typo beside": (
        "unknown name",
        saving(policies.save_only_these_names("h", "hh")),
        ARGS,
        "names 'hh', but no value inside the checkpoint",
    ),
    "typo to leave out": (
        "unknown name",
        saving(policies.save_any_names_but_these("q")),
        ARGS,
        "names inside it are 'h'",
    ),
    "typo in one of both": (
        "unknown name",
        saving(policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("q"))),
        ARGS,
        "save_from_both_policies",
    ),
    "no name inside": (
        "unknown name",
        saving(policies.save_only_these_names("h"), lambda x, u, v: jnp.sin(jnp.sin(x @ u) @ v)),
        ARGS,
        "No value inside it has a name.",
    ),
    "name outside": (
        "unknown name",
        lambda x, u, v: saving(policies.save_only_these_names("h"), lambda h: jnp.sin(jnp.sin(h) @ v))(
            checkpoint_name(x @ u, "h")
        ),
        ARGS,
        "A value outside of it does: move that value into the checkpoint",
    ),
    "stub": ("ignored names", saving(policies.save_anything_except_these_names("h")), ARGS, "saves everything"),
    "batched": ("saves nothing", *batched(policies.dots_with_no_batch_dims_saveable), "has batch dimensions"),
    "no product": (
        "saves nothing",
        saving(policies.dots_saveable, lambda x, *_: jnp.sin(x)),
        ARGS,
        "no matmul inside",
    ),
    "not needed": (
        "saves nothing",
        saving(policies.dots_saveable, lambda x, u, v: x @ u),
        ARGS,
        "saves dot_general, but",
    ),
    "ragged": (
        "saves nothing",
        saving(policies.dots_saveable, lambda x, w, sizes: jnp.sin(lax.ragged_dot(x, w, sizes))),
        (array(16, 8), array(2, 8, 8), array(2, dtype=jnp.int32)),
        "it does not cover ragged_dot, on test_lint.py:",
    ),
    "own": ("saves nothing", saving(lambda *_, **__: False), ARGS, "returns False for every operation"),
    "no barrier": ("undone", saving(None, prevent_cse=False), ARGS, "Remove prevent_cse=False"),
    "unrolled": (
        "undone",
        scanned_without_barrier(unroll=True),
        SCANNED,
        "inside a scan with 6 iterations and unroll=6",
    ),
    "two in one iteration": (
        "recomputed early",
        lambda w, x: jnp.sum(lax.scan(lambda x, ws: (functools.reduce(without_barrier, ws, x), None), x, w)[0]),
        (array(4, 2, 64, 64), array(512, 64)),
        "Remove prevent_cse=False",
    ),
    "in another": ("nested", in_another(jax.checkpoint, jax.checkpoint), ARGS, "and has no effect"),
    "overridden": ("overridden", layers(jax.checkpoint, dots), ARGS, "policy decides: the forward pass saves 0 B"),
    "whole model": ("whole model", layers(jax.checkpoint), ARGS, "4 identical layers"),
    "whole scan": ("whole model", scanned(jax.checkpoint), ARGS, "around the body of the scan"),
}
SOUND = {
    "a policy": (dots(sound), ARGS),
    "names": (saving(policies.save_only_these_names("h")), ARGS),
    "all but": (
        saving(policies.save_any_names_but_these("w"), lambda x, u, v: sound(x, checkpoint_name(jnp.sin(u), "w"), v)),
        ARGS,
    ),
    "not batched": batched(policies.dots_saveable),
    "no policy": (jax.checkpoint(sound), ARGS),
    "no barrier in a scan": (scanned(each=lambda f: jax.checkpoint(f, prevent_cse=False)), ARGS),
    "several without barrier that recompute no matmul": (
        lambda w, x: jnp.sum(lax.scan(lambda x, ws: (functools.reduce(saving_dots, ws, x), None), x, w)[0]),
        (array(4, 2, 64, 64), array(512, 64)),
    ),
    "each layer": (layers(each=jax.checkpoint), ARGS),
    "a scan's body": (scanned(each=jax.checkpoint), ARGS),
    "one policy for names of two checkpoints": (
        lambda x, u, v: [
            saving(policies.save_only_these_names("a", "b"), lambda x, w, n=n: jnp.sin(checkpoint_name(x @ w, n)))(x, w)
            for n, w in (("a", u), ("b", v))
        ],
        ARGS,
    ),
    "layers in groups": (
        layers(lambda net: lambda *a: jax.checkpoint(net)(jax.checkpoint(net)(*a), *a[1:]), jax.checkpoint),
        ARGS,
    ),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_checkpoint_or_policy_without_effect_is_found(case):
    kind, function, args, words = CHECKPOINTS[case]
    found = [finding for finding in lint(function, *args).findings if finding.name is None]
    assert [finding.kind for finding in found] == [kind]
    assert words in found[0].text


def test_every_kind_of_finding_has_a_case():
    elsewhere = {LintKind.REMAT3, LintKind.DRAWN_AGAIN}  # test_remat3.py, test_unrepeatable.py
    assert {kind for kind, *_ in (*NAMES.values(), *CHECKPOINTS.values())} == set(LintKind) - elsewhere
    (finding,) = lint(discarded, *ARGS).findings
    assert finding.kind is LintKind.DISCARDED and finding.kind == "discarded" and str(finding.kind) == "discarded"


@pytest.mark.parametrize(
    ("length", "unroll", "is_undone"),
    [(6, 1, False), (6, 3, False), (6, 5, False), (6, 6, True), (6, 9, True), (6, True, True), (1, 1, True)],
)
def test_a_checkpoint_in_a_scan_is_undone_where_xla_undoes_it(length, unroll, is_undone):
    f, args = scanned_without_barrier(unroll), (array(length, 16, 16), array(8, 16))
    measured = measure(f, *args)
    matmul = 2 * 8 * 16 * 16
    forward, recompute, backward = 2, 2, 4  # matmuls of one iteration
    matmuls = length * (forward + backward + (0 if is_undone else recompute))
    assert measured.cost.flops // matmul - matmuls in (0, 1, 2, 3), "elementwise operations have a few FLOPs"
    assert measured.trace.cost.flops // matmul >= length * (forward + recompute + backward)
    found = [finding for finding in lint(f, *args).findings if finding.kind == "undone"]
    assert len(found) == is_undone


@pytest.mark.parametrize("inner", [1, 2])
def test_a_loop_around_an_unrolled_scan_keeps_its_checkpoints(inner):
    def f(w, x):
        return jnp.sum(lax.scan(lambda c, w: (body(w, c), None), x, w)[0])

    body = scanned_without_barrier(True, lambda x: x)
    args = array(4, inner, 16, 16), array(8, 16)
    measured = measure(f, *args)
    assert measured.cost.flops // (2 * 8 * 16 * 16) >= 4 * inner * 8
    assert "undone" not in [finding.kind for finding in lint(f, *args).findings]


def in_branches(run):
    return lambda x, ws: lax.cond(x[0, 0] > 0, run, lambda x, ws: x, x, ws)


def in_inner_loops(run):
    return lambda x, ws: lax.scan(lambda x, _: (run(x, ws), None), x, None, length=2)[0]


# How an iteration of a scan runs its layers, given a function of the carry and the weights that runs all of them.
BODIES = {
    "in a row": lambda run: run,
    "inside a checkpoint": jax.checkpoint,
    "inside a checkpoint without barrier": functools.partial(jax.checkpoint, prevent_cse=False),
    "inside a jit": jax.jit,
    "in a branch": in_branches,
    "in a branch inside a checkpoint": lambda run: jax.checkpoint(in_branches(run)),
    "in an inner loop inside a checkpoint": lambda run: jax.checkpoint(in_inner_loops(run)),
    "before another matmul": lambda run: lambda x, ws: jnp.tanh(run(x, ws) @ ws[0]),
}


@pytest.mark.parametrize("per_iteration", few([2, 1, 4]))
@pytest.mark.parametrize("body", BODIES)
def test_lint_finds_a_checkpoint_without_barrier_that_costs_memory_or_has_no_effect(body, per_iteration):
    """Compared with the same checkpoints with barriers, the compiled program has a higher peak or fewer FLOPs."""

    def groups(barrier):
        inner = jax.checkpoint(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w), prevent_cse=barrier)
        run = BODIES[body](lambda x, ws: functools.reduce(inner, ws, x))
        return lambda w, x: jnp.sum(lax.scan(lambda x, ws: (run(x, ws), None), x, w)[0])

    args = array(8 // per_iteration, per_iteration, 64, 64), array(512, 64)
    found = lint(groups(False), *args).findings
    with_barriers, without = (measure(groups(barrier), *args) for barrier in (True, False))
    kinds = {str(finding.kind) for finding in found} & {"undone", "recomputed early"}
    assert ("undone" in kinds) == (without.cost.flops < 0.95 * with_barriers.cost.flops)
    assert bool(kinds) == (without.peak_bytes > 1.02 * with_barriers.peak_bytes)


@pytest.mark.parametrize("case", SOUND)
def test_an_effective_checkpoint_has_no_finding(case):
    function, args = SOUND[case]
    assert kinds(function, *args) == []


def test_the_reported_peak_of_a_whole_model_is_that_of_liveness():
    around = jax.checkpoint(layers())
    (finding,) = lint(around, *ARGS).findings
    peaks = [bytes_text(liveness(f, *ARGS).peak_bytes) for f in (around, layers())]
    assert f"so the peak is {peaks[0]}, and {peaks[1]} without a checkpoint" in finding.text
    assert liveness(layers(each=jax.checkpoint), *ARGS).peak_bytes < 0.9 * liveness(around, *ARGS).peak_bytes


def test_a_plan_reports_a_checkpoint_around_a_whole_model():
    (finding,) = plan(layers(), *ARGS, saved=0.5).findings
    assert finding.kind == "whole model" and "4 identical layers" in finding.text
    made = plan(layers(), *ARGS, saved=0.5)
    assert "identical layers" in str(made) and "identical layers" in made._repr_mimebundle_()["text/html"]
    assert plan(layers(each=jax.checkpoint), *ARGS, saved=0.5).findings == ()
    assert plan(sound, *ARGS, saved=0.5).findings == ()


# Places


def test_a_suggested_name_saves_and_avoids_the_stated_amounts():
    """A name put there by hand saves and avoids the same."""

    def function(x, u, v, name=lambda value, where: value):
        scores = name(x @ name(jnp.sin(x), "input").T, "scores") * 0.1
        p = jax.nn.softmax(name(jnp.where(jnp.tri(16) > 0, scores, -1e9), "softmax"))
        return jnp.sin(name(p @ x @ u, "product"))

    places = lint(function, *ARGS).places
    assert [place.value for place in places] == [
        "the result of a matmul", "the input of a softmax", "the result of a matmul",
        "the result of a matmul", "the input of a matmul",
    ]  # fmt: skip
    assert [place.avoided / place.nbytes for place in places] == sorted(
        (place.avoided / place.nbytes for place in places), reverse=True
    )
    graph = recompute_graph(lambda *args: function(*args, name=checkpoint_name), *ARGS)
    nothing = graph.evaluate(())
    worth = {(place.nbytes, place.avoided) for place in places}
    assert len(worth) == len(places) and graph.names == ("input", "scores", "softmax", "product")
    for name in graph.names:
        nbytes, cost = graph.evaluate([name])
        assert (nbytes - nothing[0], nothing[1] - cost) in worth, name


def test_places_in_loops_and_layers_count_all_of_them():
    (in_scan, *_), (in_layers, *_) = lint(unnamed(scanned), *ARGS).places, lint(unnamed(layers), *ARGS).places
    assert in_scan.type == in_layers.type == "f32[16,8]"
    assert (in_scan.nbytes, in_layers.nbytes) == (5 * 512, 4 * 512)
    assert (in_scan.count, in_layers.count) == (5, 4)
    assert "5 × f32[16,8]" in str(lint(unnamed(scanned), *ARGS))


def test_a_convolution_is_not_called_a_matmul():
    def convolve(x, w):
        return jnp.sin(lax.conv(x, w, (1, 1), "SAME"))

    found = lint(lambda x, w: convolve(convolve(x, w), w), array(2, 4, 8, 8), array(4, 4, 3, 3))
    assert {place.value for place in found.places} <= {"the result of a convolution", "the input of a convolution"}
    assert found.places


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("activation", [lambda h: h * jnp.exp(-h) + h, lambda h: 3 * h - h * jnp.exp(-h)])
def test_a_name_saves_and_avoids_the_stated_amounts_in_all_layers_that_run_its_line(activation, depth):
    """No matmul reads the result of the last layer, but a name on the line is on that result too."""

    def net(x, ws, name=lambda value: value):
        for w in ws:
            h = x @ w
            x = name(activation(h))
        return jnp.sin(x)

    args = array(16, 8), [array(8, 8)] * depth
    places = [place for place in lint(net, *args).places if "input" in place.value]
    assert places
    for place in places:
        graph = recompute_graph(lambda *args: net(*args, name=lambda h: checkpoint_name(h, "output")), *args)
        (nothing, most), (nbytes, cost) = graph.evaluate(()), graph.evaluate(["output"])
        assert (nbytes - nothing, most - cost) == (place.nbytes, place.avoided)


def test_no_name_is_suggested_in_a_function_that_is_differentiated_inside():
    """Its lines compute derivatives too, which no `checkpoint_name` on the line would save."""

    def inner(x, u, v):
        h = x @ u
        return jnp.sum(jnp.tanh(h) @ v)

    def outer(x, u, v):
        h = jax.jvp(inner, (x, u, v), (x, u, v))[1] * (x @ u)
        return jnp.sin(h) @ v

    assert {place.source.function.rpartition(".")[2] for place in lint(outer, *ARGS).places} == {"outer"}


@pytest.mark.parametrize("depth", [1, 3])
def test_a_finding_states_the_bytes_and_the_recompute_of_all_layers(depth):
    def net(x, ws):
        for w in ws:
            x = checkpoint_name(jax.nn.gelu(x @ w), "late")
        return jnp.sin(x)

    args = array(16, 8), [array(8, 8)] * depth
    (finding,) = lint(net, *args).findings
    graph = recompute_graph(net, *args)
    (nothing, most), (nbytes, cost) = graph.evaluate(()), graph.evaluate(["late"])
    avoided = f"only {amount_text(most - cost)} of" if most > cost else "no recompute"
    assert f"takes {bytes_text(nbytes - nothing)} but avoids {avoided}" in finding.text


def unnamed(net):
    return net(each=lambda f: jax.checkpoint(lambda x, u, v: jnp.sin(jnp.tanh(x @ u) @ v)))


def test_suggested_names_are_valued_in_addition_to_the_functions_own_names():
    """Recompute that a name already avoids is no reason for another. A finding has the place that its text names."""
    (other,) = lint(sound, *ARGS).places
    assert (other.value, other.avoided) == ("the result of a matmul", 2 * 16 * 8 * 8)
    assert len(lint(input_named(lambda h: h), *ARGS).places) == 1
    both = lint(before_additions_only, *ARGS)
    assert both.places[0].value == "the result of a matmul"
    assert str(both.places[0]) in both.findings[0].text


@pytest.mark.parametrize("activation", [jnp.tanh, jnp.exp, jax.nn.softmax, jax.nn.relu, jax.nn.gelu, jax.nn.silu])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", ["h", None])
def test_no_value_is_suggested_whose_name_would_be_rejected(activation, depth, name):
    """The same threshold decides about both, with and without a name on the value."""

    def net(x, ws, name=None):
        for w in ws:
            h = x @ w
            x = activation(h)
            x = checkpoint_name(x, name) if name else x
        return jnp.sin(x)

    args = array(64, 32), [array(32, 32)] * depth
    (rejected,) = lint(lambda *args: net(*args, name="h"), *args).findings
    places = lint(lambda *args: net(*args, name=name), *args).places
    assert places[0].source.line == rejected.source.line - 2  # the matmul
    assert rejected.source.line - 1 not in [place.source.line for place in places]  # the activation


def test_without_matmuls_the_result_of_any_operation_can_be_suggested():
    sines = lint(lambda x: jnp.sin(jnp.sin(jnp.sin(x))), ARGS[0])
    assert [place.value for place in sines.places] == ["the result of sin"] * 2


def test_an_operation_without_a_result_is_no_place():
    def printed(x):
        y = jnp.sin(x)
        jax.debug.print("{}", y)
        checkify.check(y.sum() > 0, "negative")
        return jnp.sin(y)

    try:
        found = lint(printed, ARGS[0])
    except PlanError:
        pytest.skip("this JAX refuses a check inside a checkpoint, as 0.7.2 does")
    assert [place.value for place in found.places] == ["the result of sin"]


def test_without_names_a_plan_is_a_policy_and_says_where_names_would_help():
    found = plan(before_additions_only, *ARGS, saved=0.5)
    assert (found.names, found.with_policy) == ((), "dots_with_no_batch_dims_saveable")
    text = " ".join(plain_text(found, 1000).split())
    assert "names no value that the backward pass could use" in text
    assert "'h' on test_lint.py" in text and "derivative of add" in text
    assert (
        'jax.ad_checkpoint.checkpoint_name: h = checkpoint_name(h, "h"). The best candidates: the result of a' in text
    )
    assert "512 B, avoids 2,048 operations" in text
    assert "best as written" in plain_text(plan(lambda x: x * 2, ARGS[0], saved=0.5), 1000)


@pytest.mark.parametrize("look", [lint, explore])
def test_a_step_in_microbatches_has_no_loss_to_look_at(look):
    step = rewrite(lambda w, x: w - jax.grad(lambda w: jnp.sin(x @ w).mean())(w), microbatches=2, in_axes=(None, 0))
    with pytest.raises(TraceError, match=r"Pass the function as written\."):
        look(step, jnp.ones((3, 3)), jnp.ones((4, 3)))


def test_a_function_that_cannot_be_traced_gets_a_reason():
    with pytest.raises(TraceError, match="integer"):
        lint(lambda n: n * 2, 3)
    with pytest.raises(PlanError, match="differentiates a function that has a checkpoint"):
        lint(lambda x: jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum())(x).sum(), ARGS[0])


def test_the_place_that_is_suggested_instead_of_a_name_avoids_as_much_per_byte():
    def layer(weights, x):
        project, out, up, down = weights
        q, k, v = (part.reshape(*x.shape[:2], 4, -1) for part in jnp.split(x @ project, 3, -1))
        context = checkpoint_name(jax.nn.dot_product_attention(q, k, v, is_causal=True), "context")
        h = x + context.reshape(x.shape) @ out
        return h + jnp.tanh(h @ up) @ down

    def loss(weights, x):
        return jnp.mean(jax.lax.scan(lambda x, layers: (layer(layers, x), None), x, weights)[0] ** 2)

    shapes = [(4, 512, 1536), (4, 512, 512), (4, 512, 2048), (4, 2048, 512), (4, 32, 512)]
    *weights, x = (jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)
    (finding,) = lint(loss, weights, x).findings
    # The name avoids 16.8 M operations for 1 MiB; the probabilities, which are nearer, only 65.5 k for 256 KiB.
    assert "takes 1 MiB but avoids only 16.8 M of" in finding.text
    assert "(f32[4,32,1536]) instead: it avoids 805 M operations for 3 MiB." in finding.text


@pytest.mark.parametrize("unroll", [1, 4])
def test_a_name_deep_in_a_checkpointed_model_is_valued_per_byte(unroll):
    """Most of the recompute of a later layer's value does not depend on its name, which avoids as much per byte."""

    def layer(x, weights):
        project, up, down = weights
        x = x + jnp.tanh(x @ up) @ down
        return x * jnp.sin(checkpoint_name(x @ project, "key").sum(-1, keepdims=True)), None

    def loss(x, weights):
        return jnp.sum(lax.scan(layer, x, weights, unroll=unroll)[0] ** 2)

    args = array(16, 64), (array(4, 64, 8), array(4, 64, 256), array(4, 256, 64))
    (nbytes, cost), (more, less) = (recompute_graph(loss, *args).evaluate(names) for names in ((), ("key",)))
    assert (cost - less) / (more - nbytes) > 25
    assert kinds(loss, *args) == []


# Display


def test_text_has_findings_and_places():
    found = lint(output_named(jnp.tanh), *ARGS)
    line = found.findings[0].source.line
    place = f"the result of a matmul  f32[16,8]  512 B              2,048  test_lint.py:{line} (<lambda>)"
    assert (
        str(found)
        == f"""\
About       Finding
────────────────────────────────────────────────────────────────────────────────────────────────────
own result  'h' on test_lint.py:{line} takes 512 B but avoids no recompute: the derivative of tanh on
            test_lint.py:{line} uses its own result, which is computed before the name. Name the result
            of a matmul on test_lint.py:{line} (f32[16,8]) instead: it avoids 2,048 operations for 512
            B.
<lambda>: 1 finding

No checkpoint has a policy that saves the name 'h', so the name has no effect yet. lint checks it as
if a policy saved it.

Value                   Type       Bytes  Recompute avoided  Line
───────────────────────────────────────────────────────────────────────────────────────
{place}
{place}
Values worth naming, by recompute (FLOPs and transcendentals) avoided per byte saved"""
    )
    page = found._repr_mimebundle_()["text/html"]
    assert page.count("<table") == 2 and "&lt;lambda&gt;: 1 finding" in page
    assert str(lint(dots(sound), *ARGS)).splitlines()[0] == "sound: no findings"


def test_names_that_no_policy_saves_get_a_note():
    """A plan and `lint` are used before there is a policy, so this is not a finding."""

    def two(x, u, v):
        return checkpoint_name(sound(x, u, v), "out")

    def checkpointed(policy=None, function=sound):
        return lint(jax.checkpoint(function, policy=policy), *ARGS)

    notes = {lint(sound, *ARGS).note, checkpointed().note, checkpointed(policies.dots_saveable).note}
    notes.add(checkpointed(policies.save_only_these_names("misspelled")).note)
    (note,) = notes
    assert note == (
        "No checkpoint has a policy that saves the name 'h', so the name has no effect yet. lint checks it as if a "
        "policy saved it."
    )
    assert lint(sound, *ARGS).findings == ()
    assert " ".join(str(lint(sound, *ARGS)).split()).startswith(f"sound: no findings {note}")
    assert "saves one of the 2 names, so they have no effect yet" in checkpointed(function=two).note

    for policy in (
        policies.save_only_these_names("h"),
        policies.everything_saveable,
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["h"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
    ):
        assert checkpointed(policy).note == checkpointed(policy, two).note == ""
    assert lint(jnp.sin, ARGS[0]).note == ""  # no names


def test_findings_of_one_line_are_folded_and_say_so():
    """This is so for names of unrolled layers, for example. The data contains each name."""

    def layers(x, u, v):
        for i in range(6):
            x = checkpoint_name(jnp.tanh(x @ u), f"h{i}")
        return jnp.sin(x)

    found = lint(layers, *ARGS)
    assert [finding.name for finding in found.findings] == [f"h{i}" for i in range(6)]
    assert "The same holds for 'h1', 'h2', 'h3' and 2 more, all in .findings." in " ".join(str(found).split())
    assert str(found).count("avoids no recompute") == 1 and "layers: 6 findings" in str(found)


def test_many_places_are_folded_and_say_so():
    found = lint(sound, *ARGS)
    many = Lint("f", [], found.places * 12)
    assert "10 of 12 are shown, .places has all" in " ".join(str(many).split())

"""The facts about JAX's internals that this package uses. The name of a failing test states what a release changed."""

import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import array
from jax import lax
from jax._src import config, core, hardware_utils, source_info_util, xla_bridge
from jax._src.interpreters import mlir
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType, PartitionSpec
from releases import since

import rematscope
from rematscope import jax_compat
from rematscope.jax_compat import vjp_hook
from rematscope.tracing.signature import SETTINGS

X = array(8)


def equations(f, *args):
    return jax_compat.body_of(jax.make_jaxpr(f)(*args))[0].eqns


def test_no_file_of_this_package_counts_as_the_users():
    files = map(str, Path(rematscope.__file__).parent.rglob("*.py"))
    assert not any(map(source_info_util.is_user_filename, files)) and source_info_util.is_user_filename(__file__)


@jax.custom_jvp
def with_jvp(x):
    return jnp.sin(x)


with_jvp.defjvp(lambda xs, ts: (with_jvp(*xs), jnp.cos(*xs) * ts[0]))


@jax.custom_vjp
def with_vjp(x):
    return jnp.sin(x)


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda x, g: (jnp.cos(x) * g,))

with_vmap = jax.custom_batching.custom_vmap(lambda x: jnp.sin(x))
with_vmap.def_vmap(lambda size, batched, x: (jnp.sin(x), batched[0]))

CALLS = {
    "jit": jax.jit(jnp.sin),
    "checkpoint": jax.checkpoint(jnp.sin),
    "custom_jvp": with_jvp,
    "custom_vjp": with_vjp,
    "custom_vmap": with_vmap,
    "composite": lax.composite(jnp.sin, "rematscope.sin"),
    "linear_call": lambda x: jax.custom_derivatives.linear_call(lambda _, x: 2.0 * x, lambda _, g: 2.0 * g, (), x),
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_parameter_that_holds_the_body_of_a_call(kind):
    (eqn,) = equations(CALLS[kind], X)
    body = jax_compat.called_body(eqn)
    assert [inner.primitive.name for inner in jax_compat.body_of(body)[0].eqns] in (["sin"], ["mul"])
    assert list(map(id, jax_compat.bodies(eqn))) == [id(body)]


@pytest.mark.parametrize("remat3", [False, True])
def test_the_names_of_the_primitives_of_jits_and_checkpoints(remat3):
    with jax_compat.use_remat3(remat3):
        names = [jax_compat.primitive_name(*equations(f, X)) for f in (jax.jit(jnp.sin), jax.checkpoint(jnp.sin))]
    assert names[0] in jax_compat.JITS and names[1] in jax_compat.CHECKPOINTS


def test_the_parameters_of_a_scan_that_divide_its_operands():
    def f(constant, carry, xs):
        return lax.scan(lambda c, x: (c * constant, (c, x)), carry, xs, reverse=True)

    (eqn,) = equations(f, array(), array(), array(5, 3))
    scan = jax_compat.scan_of(eqn)
    assert (scan.consts, scan.carries, scan.length, scan.reverse) == (1, 1, 5, True)


def test_the_parameters_of_a_while_loop_that_divide_its_operands():
    def f(limit, step, x):
        return lax.while_loop(lambda x: x < limit, lambda x: x + step, x)

    (eqn,) = equations(f, array(), array(), array())
    loop = jax_compat.while_of(eqn)
    assert (loop.tested, loop.kept) == (1, 1)
    assert [e.primitive.name for e in jax_compat.body_of(loop.condition)[0].eqns] == ["lt"]


def test_the_parameters_of_a_shard_map_and_the_types_inside():
    mesh = jax.sharding.AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    seen = []

    def on_device(x):
        seen.append(jax_compat.varying(jax.typeof(x)))
        return x

    spec = PartitionSpec("b")
    mapped = jax.shard_map(on_device, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"b"})
    (eqn,) = (e for e in equations(mapped, X) if e.primitive.name == "shard_map")
    found = jax_compat.shard_map_of(eqn)
    assert (found.axes, found.in_specs, found.out_specs, found.check_vma) == ({"b": 4}, (spec,), (spec,), True)
    assert seen[-1] == {"b"}


def test_the_branches_of_a_cond():
    (eqn,) = equations(lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), X)[-1:]
    branches = [jax_compat.body_of(each)[0].eqns[0].primitive.name for each in jax_compat.branches_of(eqn)]
    assert branches == ["cos", "sin"]


@pytest.mark.parametrize("kind", [*CALLS, "scan", "cond"])
def test_an_equation_runs_with_its_parameters(kind):
    """`get_bind_params` returned a pair until JAX 0.11."""
    others = {
        "scan": lambda x: lax.scan(lambda c, x: (c + x, c), 0.0, x)[1],
        "cond": lambda x: lax.cond(True, jnp.sin, jnp.cos, x),
    }
    f = CALLS.get(kind) or others[kind]
    eqn = equations(f, X)[-1]
    operands = [np.ones(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    results = map(jnp.asarray, jax_compat.run(eqn, operands))
    assert [(x.shape, x.dtype) for x in results] == [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]


def test_the_names_that_a_policy_was_made_with():
    policies = jax.checkpoint_policies
    assert jax_compat.names_in_policy(policies.save_only_these_names("a", "b")) == {"a", "b"}
    assert jax_compat.names_in_policy(policies.save_any_names_but_these("c")) == {"c"}
    both = policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("a"))
    assert jax_compat.names_in_policy(both) == {"a"}
    assert jax_compat.names_in_policy(lambda *_, **__: True) == set()
    offloading = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"],
        names_which_can_be_offloaded=["b"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    assert jax_compat.names_in_policy(offloading) == {"a", "b"}
    assert jax_compat.policy_name(policies.save_only_these_names("a")) == "save_only_these_names"


def test_a_checkpoint_and_its_policy_and_a_name():
    policy = jax.checkpoint_policies.dots_saveable
    (eqn,) = equations(jax.checkpoint(jnp.sin, policy=policy, prevent_cse=False), X)
    assert jax_compat.is_checkpoint(eqn)
    assert jax_compat.policy_of(eqn) is policy
    assert not jax_compat.prevents_cse(eqn)
    (eqn,) = equations(lambda x: jax.ad_checkpoint.checkpoint_name(x, "a"), X)
    assert jax_compat.checkpoint_name(eqn) == "a"


@pytest.mark.parametrize(("ordered", "effect"), [(False, "DebugEffect"), (True, "OrderedDebugEffect")])
def test_the_classes_of_the_effects_of_a_print(ordered, effect):
    (eqn,) = equations(lambda x: jax.debug.print("{}", x, ordered=ordered), X)
    assert jax_compat.effects_of(eqn) == {effect}
    assert jax_compat.is_repeatable(eqn, prints=True)
    assert not jax_compat.is_repeatable(eqn)


def test_a_collective_has_no_effect_that_counts():
    f = jax.vmap(lambda x: lax.axis_index("i") + x, axis_name="i")
    assert all(not jax_compat.effects_of(eqn) for eqn in equations(f, X))
    jaxpr = jax.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 2)])(X)
    assert all(not jax_compat.effects_of(eqn) for eqn in jax_compat.body_of(jaxpr)[0].eqns)


def test_the_operations_that_may_return_something_else_the_next_time():
    (eqn,) = equations(lambda x: jax.pure_callback(np.sin, X, x), X)
    assert not jax_compat.is_repeatable(eqn)
    assert jax_compat.is_repeatable(
        equations(lambda k: jax.random.bits(k, (4,)), jax.eval_shape(lambda: jax.random.key(0)))[-1]
    )


@since("0.8", "mutable arrays")
def test_the_type_of_a_mutable_array():
    (eqn, *_) = equations(lambda x: jax.new_ref(x)[...], X)
    assert jax_compat.is_mutable_array(eqn.outvars[0].aval)
    assert not jax_compat.is_mutable_array(eqn.invars[0].aval)


@pytest.mark.parametrize("call", [jax.jit, jax.checkpoint])
def test_a_call_that_jvp_differentiates_is_in_a_scope_of_that_name(call):
    def equations(f):
        return [eqn for eqn in jax.make_jaxpr(f)(X).eqns if jax_compat.bodies(eqn)]

    assert not any(map(vjp_hook.is_in_jvp, equations(call(jnp.sin))))
    differentiated = equations(lambda x: jax.jvp(call(jnp.sin), (x,), (x,)))
    assert differentiated and all(map(vjp_hook.is_in_jvp, differentiated))


def test_the_vjp_that_jax_grad_calls_is_replaced_inside_a_function_and_restored():
    before = vjp_hook._api[vjp_hook._VJP], jax.vjp
    jaxpr = jax.make_jaxpr(vjp_hook.record_gradients(lambda x: jax.grad(lambda x: jnp.sum(x**2))(x)))(X)
    marks = [jax_compat.checkpoint_name(e) for e in jax_compat.body_of(jaxpr)[0].eqns]
    assert {mark.rpartition(":")[2] for mark in marks if mark} == {"differentiated", "value", "cotangent", "gradient"}
    assert (vjp_hook._api[vjp_hook._VJP], jax.vjp) == before


def test_the_state_of_the_transformations_in_progress():
    found = []

    def f(x):
        with jax_compat.outside_transformations():
            found.append(jnp.sin(1.0) + 0)
            found.append(isinstance(found[0], jax.core.Tracer))
        return x + 1

    jax.jit(jax.vmap(f, axis_name="i"))(jnp.ones(3))
    assert found[1] is False
    assert all(hasattr(core.trace_ctx, each) for each in ("trace", "axis_env", "set_trace", "set_axis_env"))


def test_the_switches_that_are_set_for_a_while():
    with config._check_vma(False):
        assert config._check_vma.value is False
    with jax_compat.default_remat():
        assert not jax_compat.remat3()


def test_the_functions_that_tell_which_backends_have_started():
    jnp.ones(())
    assert xla_bridge.backends_are_initialized() is True
    assert isinstance(hardware_utils.num_available_tpu_chips_and_device_id()[0], int)


def test_a_lowerings_closure_holds_its_function():
    rule = mlir.lower_fun(lambda x: x, multiple_results=False)
    assert rule.__qualname__ == "lower_fun.<locals>.f_lowered"
    assert "fun" in inspect.getclosurevars(rule).nonlocals
    assert mlir._lowerings


# Settings for which jax.jit retraces although they change no value: they check, choose how a program is
# transformed, lowered or compiled, or hold the context of the caller, which a signature compares separately.
WITHOUT_EFFECT = """
    jax_auto_pcast jax_check_static_indices jax_custom_jvp3 jax_custom_vjp3 jax_debug_key_reuse jax_default_device
    jax_disable_jit jax_embedded_constants_max_bytes jax_enable_pgle jax_error_checking_behavior_divide
    jax_error_checking_behavior_nan jax_error_checking_behavior_oob jax_hlo_source_file_canonicalization_regex
    jax_mutable_array_checks jax_no_collectives jax_no_execution jax_numpy_rank_promotion
    jax_pallas_enable_debug_checks jax_pallas_use_mosaic_gpu jax_pgle_profiling_runs
    jax_ragged_dot_use_gpu_pallas_triton_lowering jax_raise_on_ppermute_sort_diff jax_remat3
    jax_remat_barrier_no_cotangents jax_remove_size_one_mesh_axis_from_type jax_scan3 jax_use_direct_linearize
    jax_use_emit_pipeline_primitive jax_use_shardy_partitioner jax_use_simplified_jaxpr_constants
    jax_xla_profile_version
""".split()


@pytest.mark.skipif(not hasattr(config, "trace_context_names"), reason="new JAX lists what a trace depends on")
def test_all_settings_that_make_jax_retrace_are_compared_or_known_to_change_no_value():
    names = {name for name in config.trace_context_names() if name.startswith("jax_")}
    assert names - {*SETTINGS, *WITHOUT_EFFECT} == set()


@since("0.10", "a rule may return None for other arguments in its second trace")
def test_the_forward_rule_of_a_custom_vjp_is_cached_for_each_set_of_differentiated_operands():
    @jax.custom_vjp
    def f(x, y):
        return x * y

    traced = []

    def forward(x, y):
        traced.append((x.perturbed, y.perturbed))
        return x.value * y.value, (x.value if y.perturbed else None, y.value)

    f.defvjp(forward, lambda kept, ct: (ct * kept[1], None if kept[0] is None else ct * kept[0]), symbolic_zeros=True)
    whole = jax.make_jaxpr(f)(X, X)
    (eqn,) = jax_compat.body_of(whole)[0].eqns

    def differentiate(*argnums):
        return jax.grad(lambda x, y: jaxpr_as_fun(whole)(x, y)[0].sum(), argnums)(jnp.ones(8), jnp.ones(8))

    for argnums in ((0, 1), (0,), (0, 1)):
        jax_compat.forget_forward_rule(eqn)
        differentiate(*argnums)
    assert traced == [(True, True), (True, False), (True, True)]


def test_a_jit_is_traced_separately_where_maps_become_loops():
    mapped = jax.jit(jax.vmap(jnp.sin))
    plain = str(jax.make_jaxpr(mapped)(X))
    with jax_compat.maps_as_loops(8) as loops:
        assert loops() == 0 and "scan" in str(jax.make_jaxpr(mapped)(X)) and loops() == 1
    assert "scan" not in plain and str(jax.make_jaxpr(mapped)(X)) == plain

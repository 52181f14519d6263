"""Wrong answers to checkpoint_dot_policy, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
NO_BATCH = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
without_batch = functools.partial(jax.checkpoint, policy=NO_BATCH)


def pipeline(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)


# Saved and recomputed values


@fails_with(
    "also saved",
    "relu's mask, bool[",
    "2 * (relu(x @ w1) @ w2)",
    "Which function marks",
    hint="pipeline_inside_jax_checkpoint_return",
)
def no_checkpoint(w1, w2, x):
    return pipeline(w1, w2, x)


@fails_with(
    "not saved",
    "x @ w1, f32[",
    "relu(x @ w1) @ w2, f32[",
    "recomputes 2 matmuls",
    "FLOPs",
    "without a policy",
    hint="jax_checkpoint_save_without_policy",
)
def no_policy(w1, w2, x):
    return jax.checkpoint(pipeline)(w1, w2, x)


@fails_with("also saved", "relu's mask", "2 * (relu(x @ w1) @ w2)", hint="mask_result_relu_policy_return")
def everything_saveable(w1, w2, x):
    return jax.checkpoint(pipeline, policy=jax.checkpoint_policies.everything_saveable)(w1, w2, x)


def dots_where(condition):
    """Right, except for a condition on the operands' shapes."""

    def policy(prim, *operands, **parameters):
        return NO_BATCH(prim, *operands, **parameters) and condition(*operands)

    return jax.checkpoint(pipeline, policy=policy)


@fails_with("recomputes", "recomputes 3 matmuls", "more than once", hint="jax_checkpoint_save_without_policy")
@without_batch
def inner_checkpoint_too(w1, w2, x):
    h = jax.checkpoint(lambda x: jax.nn.relu(x @ w1), policy=NO_BATCH)(x)
    return jnp.sum((h @ w2) ** 2)


@fails_with(
    "wrong memory",
    "x @ w1, f32[",
    "in pinned_host memory",
    "x @ w1 in device memory",
    hint="forward_pass_saves_right_values",
)
def offloaded(w1, w2, x):
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    return jax.checkpoint(pipeline, policy=policy)(w1, w2, x)


@fails_with("extra matmuls", "extra matmul", hint="count_matmuls_forward_pass_backward")
@without_batch
def trace_of_a_third_product(w1, w2, x):
    z = jax.nn.relu(x @ w1) @ w2
    return jnp.trace(z @ z.T)


# Residuals in disguise: gradients by hand


def by_hand(keep, gradients):
    """`pipeline` with a gradient rule: keep(w1, w2, x, y, z) is saved, gradients(*kept, ct) is the rule."""

    @jax.custom_vjp
    def answer(w1, w2, x):
        return pipeline(w1, w2, x)

    def forward(w1, w2, x):
        y = x @ w1
        z = jax.nn.relu(y) @ w2
        return jnp.sum(z**2), keep(w1, w2, x, y, z)

    answer.defvjp(forward, lambda kept, ct: gradients(*kept, ct))
    return answer


def from_products(w1, w2, x, y, z, ct):
    dz = 2 * z * ct
    dy = jnp.where(y > 0, dz @ w2.T, 0)
    return x.T @ dy, jax.nn.relu(y).T @ dz, dy @ w1.T


@fails_with("also saved", "a copy of x", hint="pipeline_inside_jax_checkpoint_return")
def argument_copied(w1, w2, x):
    return by_hand(lambda w1, w2, x, y, z: (w1, w2, x * 1, y, z), from_products)(w1, w2, x)


@fails_with("also saved", "x @ w1, f32[", hint="pipeline_inside_jax_checkpoint_return")
def same_value_twice(w1, w2, x):
    def gradients(w1, w2, x, y, again, z, ct):
        return from_products(w1, w2, x, (y + again) / 2, z, ct)

    return by_hand(lambda w1, w2, x, y, z: (w1, w2, x, y, y + 0 * y, z), gradients)(w1, w2, x)


@fails_with("also saved", "intermediate value", hint="pipeline_inside_jax_checkpoint_return")
def two_values_in_one(w1, w2, x):
    return by_hand(
        lambda w1, w2, x, y, z: (w1, w2, x, jnp.stack([y, z])),
        lambda w1, w2, x, both, ct: from_products(w1, w2, x, both[0], both[1], ct),
    )(w1, w2, x)


@fails_with("also saved", "x @ w1, f32[", hint="whole_pipeline_inside_one_jax")
@without_batch
def saved_twice_as_wide(w1, w2, x):
    y = jnp.matmul(x, w1, preferred_element_type=jnp.float32)
    return jnp.sum((jax.nn.relu(y).astype(x.dtype) @ w2) ** 2)


# Values and gradients


@fails_with("wrong value", "relu is missing", hint="take_two_small_matrices_x")
def relu_missing(w1, w2, x):
    return jax.checkpoint(lambda w1, w2, x: jnp.sum((x @ w1 @ w2) ** 2), policy=NO_BATCH)(w1, w2, x)


@fails_with("wrong value", "mean of the squares", hint="take_two_small_matrices_x")
def mean_for_sum(w1, w2, x):
    return jax.checkpoint(lambda w1, w2, x: jnp.mean((jax.nn.relu(x @ w1) @ w2) ** 2), policy=NO_BATCH)(w1, w2, x)


@fails_with("wrong value", "the square is missing", hint="take_two_small_matrices_x")
def square_missing(w1, w2, x):
    return jax.checkpoint(lambda w1, w2, x: jnp.sum(jax.nn.relu(x @ w1) @ w2), policy=NO_BATCH)(w1, w2, x)


@fails_with("wrong value", "value is wrong.", hint="take_two_small_matrices_x")
def another_activation(w1, w2, x):
    return jax.checkpoint(lambda w1, w2, x: jnp.sum((jnp.tanh(x @ w1) @ w2) ** 2), policy=NO_BATCH)(w1, w2, x)


@fails_with("wrong value", "nan", hint="take_two_small_matrices_x")
def not_a_number(w1, w2, x):
    return jax.checkpoint(pipeline, policy=NO_BATCH)(w1, w2, x) + jnp.log(-1.0).astype(x.dtype)


@fails_with("wrong gradient", " w1", "zero everywhere", hint="jax_checkpoint_changes_neither_value")
@without_batch
def gradient_stopped(w1, w2, x):
    return jnp.sum((jax.lax.stop_gradient(jax.nn.relu(x @ w1)) @ w2) ** 2)


@fails_with("wrong gradient", " w2", "wrong", hint="jax_checkpoint_changes_neither_value")
@without_batch
def half_of_the_gradient(w1, w2, x):
    z = jax.nn.relu(x @ w1) @ w2
    return jnp.sum(z * jax.lax.stop_gradient(z))


# How it is called and what it returns


@fails_with("argument order", "(w2, w1, x)", hint="grader_calls_w1_w2_x")
def weights_swapped(w2, w1, x):
    return jax.checkpoint(pipeline, policy=NO_BATCH)(w1, w2, x)


@fails_with("raises", "not callable", "wrong.py:", "policy=", hint="pass_policy_must_function_such")
def policy_is_a_string(w1, w2, x):
    return jax.checkpoint(pipeline, policy="dots_with_no_batch_dims_saveable")(w1, w2, x)


@fails_with(
    "raises",
    "dots_with_no_batch_dims_saveable() missing",
    "policy=",
    "or the result of calling it",
    hint="pass_policy_must_function_such",
)
def policy_is_called(w1, w2, x):
    return jax.checkpoint(pipeline, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable())(w1, w2, x)


@fails_with("raises", "remat policy should be", "expects True or False", hint="pass_policy_must_function_such")
def policy_returns_nothing(w1, w2, x):
    return jax.checkpoint(pipeline, policy=lambda *_, **__: None)(w1, w2, x)


@fails_with("raises", "takes 1 positional argument", "keyword", hint="jax_checkpoint_takes_one_function")
def policy_by_position(w1, w2, x):
    return jax.checkpoint(pipeline, NO_BATCH)(w1, w2, x)


@fails_with("wrong type", "returns None", hint="asks_single_number_arguments_dtype")
def forgot_to_return(w1, w2, x):
    jax.checkpoint(pipeline, policy=NO_BATCH)(w1, w2, x)


@fails_with(
    "raises",
    "Did you mean: 'dots_with_no_batch_dims_saveable'",
    "spelled correctly",
    hint="type_jax_checkpoint_policies_cell",
)
def policy_misspelled(w1, w2, x):
    return jax.checkpoint(pipeline, policy=jax.checkpoint_policies.dots_with_no_batch_dim_saveable)(w1, w2, x)


@fails_with(
    "wrong type",
    "a function that it has not called",
    "Where do you call that function",
    hint="jax_checkpoint_takes_function_returns",
)
def not_called(w1, w2, x):
    return jax.checkpoint(pipeline, policy=NO_BATCH)


@fails_with("wrong type", "int32", "no gradient", hint="asks_single_number_arguments_dtype")
def integer_result(w1, w2, x):
    return pipeline(w1, w2, x).astype(jnp.int32)


@fails_with("wrong type", "(*, *, *)", hint="asks_single_number_arguments_dtype")
def returns_the_gradient(w1, w2, x):
    return jax.grad(jax.checkpoint(pipeline, policy=NO_BATCH), argnums=(0, 1, 2))(w1, w2, x)


@fails_with("raises", "reshape", "wrong.py:", hint="work_all_shapes_arrays_without")
def one_shape_only(w1, w2, x):
    return jax.checkpoint(lambda w1, w2, x: pipeline(w1, w2, x.reshape(4, 4)), policy=NO_BATCH)(w1, w2, x)


@fails_with("raises", "TracerBoolConversionError", "wrong.py:", hint="work_all_shapes_arrays_without")
def python_branch(w1, w2, x):
    if jnp.sum(x) > 0:
        return jax.checkpoint(pipeline, policy=NO_BATCH)(w1, w2, x)
    return pipeline(w1, w2, x)


@fails_with("raises", "RecursionError", "wrong.py:", hint="work_all_shapes_arrays_without")
def calls_itself(w1, w2, x):
    return calls_itself(w1, w2, x)


@fails_with("raises", "SystemExit", hint="gets_values_arguments_gives_result")
def exits(w1, w2, x):
    raise SystemExit(0)


# Answers that are right for some inputs that the page allows and wrong for others


@fails_with("not saved", "x @ w1, bf16[", hint="policy_look_shapes_jax_vmap")
def single_rows_refused(w1, w2, x):
    return dots_where(lambda left, right: 1 not in left.shape[:1] + left.shape[-2:-1])(w1, w2, x)


@fails_with("also saved", "Under vmap", hint="forward_pass_saves_matmuls_batch")
def batches_of_one_saved(w1, w2, x):
    def policy(prim, *operands, dimension_numbers=None, **_):
        return prim.name == "dot_general" and all(operands[0].shape[axis] == 1 for axis in dimension_numbers[1][0])

    return jax.checkpoint(pipeline, policy=policy)(w1, w2, x)


@fails_with("recomputes", "recomputes 1 matmul", hint="jax_checkpoint_save_without_policy", beyond="Recomputes.count")
def first_product_once_more(w1, w2, x):
    total = jax.checkpoint(pipeline, policy=NO_BATCH)(w1, w2, x)
    return also_run_backward(jnp.matmul, total, x, w1)

"""The policies on the pages: each saves the same with and without `jax_remat3`, and gives the gradient of JAX."""

import ast
import functools

import jax
import jax.numpy as jnp
import nbformat
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from store import pages

from rematscope import jax_compat, trace

policies = jax.checkpoint_policies
X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 4)), jnp.float32)


def written() -> dict[str, list[str]]:
    """Return the policies that are on the pages as an expression of constants, and the names that each mentions."""
    found = {}
    for path in pages():
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and not cell.source.lstrip().startswith("%"):
                for node in ast.walk(ast.parse(cell.source)):
                    if (text := expression(node)) is not None:
                        found[text] = [each.value for each in ast.walk(node) if is_text(each)]
    return found


def expression(node: ast.AST) -> str | None:
    """Return the code of a policy; None if the node is not one, or depends on variables of the page."""
    function = node.func if isinstance(node, ast.Call) else node
    if not isinstance(function, ast.Attribute) or function.attr.startswith("_") or not hasattr(policies, function.attr):
        return None
    makes_one = function.attr.startswith(("save_", "offload_"))
    if isinstance(node, ast.Attribute):
        return None if makes_one else f"policies.{function.attr}"
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if not makes_one or not all(map(is_constant, arguments)):
        return None
    written = [ast.unparse(a) for a in node.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords]
    return f"policies.{function.attr}({', '.join(written)})"


def is_constant(node: ast.AST) -> bool:
    return not any(isinstance(each, ast.Name | ast.Attribute | ast.Starred) for each in ast.walk(node))


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def chain(names: list[str], x: jax.Array) -> jax.Array:
    for name in [*names, "another"]:
        x = jnp.sin(checkpoint_name(x @ X, name))
    return jnp.sum(x)


def test_every_policy_of_a_page_runs_and_saves_the_same_values_with_and_without_remat3():
    found = written()
    assert len(found) > 20
    for text, names in found.items():
        function = functools.partial(chain, names)
        try:
            policy = eval(text, {"policies": policies})
        except ValueError:  # chapter 13 shows a policy that JAX refuses
            continue
        saved = []
        for remat3 in (False, True):
            with jax_compat.use_remat3(remat3):
                passes = trace(jax.checkpoint(function, policy=policy), X)
                _, *residuals = passes.forward(X)
                (gradient,) = passes.backward(*residuals, jnp.float32(1))
            np.testing.assert_allclose(gradient, jax.grad(function)(X), rtol=1e-5, atol=1e-6, err_msg=text)
            saved.append((passes.bytes_by_kind(), passes.host_bytes()))
        assert saved[0] == saved[1], text


@pytest.mark.parametrize(("remat3", "custom_vjp3", "saved"), [(False, False, 1), (True, False, 0), (True, True, 0)])
def test_dots_saveable_saves_block_scaled_matmuls_by_default_only(remat3, custom_vjp3, saved):
    """Chapters 15 and 16 say so: the rule of `jax.nn.scaled_dot_general` calls a kernel instead of `dot_general`."""
    configs = [jax.nn.get_scaled_dot_general_config("mxfp8")] * 3

    def layer(x, w):
        numbers = ((2,), (2,)), ((0,), (0,))
        matmul = jax.nn.scaled_dot_general(x, w, numbers, preferred_element_type=jnp.bfloat16, configs=configs)
        return jnp.sum(jnp.tanh(matmul))

    x, w = (jax.ShapeDtypeStruct((1, rows, 256), jnp.bfloat16) for rows in (256, 128))
    before = jax.config.jax_custom_vjp3
    try:
        jax.config.update("jax_custom_vjp3", custom_vjp3)
        with jax_compat.use_remat3(remat3):
            passes = trace(jax.checkpoint(layer, policy=policies.dots_saveable), x, w)
    finally:
        jax.config.update("jax_custom_vjp3", before)
    assert sum(residual.kind == "computed" for residual in passes.residuals) == saved
    assert passes.backward.count("scaled_matmul_wrapper", role="R") == 1 - saved

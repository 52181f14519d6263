"""`rematscope`'s own names: there from the start, imported when asked for, and never a folder's module."""

import ast
import importlib
import pickle
import pkgutil
import pydoc
import re
import types
from pathlib import Path

import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import rematscope
from rematscope.choices.build import work


def test_listed_names_are_public():
    assert dir(rematscope) == sorted(rematscope.__all__)


def test_a_star_import_gives_every_public_name_and_no_other():
    given: dict = {}
    exec("from rematscope import *", given)
    assert given.keys() - {"__builtins__"} == set(rematscope.__all__)


def test_type_checkers_see_the_same_names_of_the_same_modules():
    stub = ast.parse(Path(rematscope.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert sorted(alias.asname for node in imports for alias in node.names) == rematscope.__all__
    for node in imports:
        for alias in node.names:
            assert getattr(rematscope, alias.asname) is getattr(importlib.import_module(node.module), alias.name)


def test_no_module_takes_the_place_of_a_public_name():
    for module in pkgutil.walk_packages(rematscope.__path__, "rematscope."):
        importlib.import_module(module.name)
    hidden = [name for name in rematscope.__all__ if isinstance(getattr(rematscope, name), types.ModuleType)]
    assert hidden == []


def test_a_stored_certificate_can_be_verified():
    def f(x, w, u):
        return jnp.sin(checkpoint_name(x @ w, "h") @ u)

    args = jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64))
    best = rematscope.plan(f, *args, saved="8 KiB")
    kept = pickle.loads(pickle.dumps(best.certificate))
    assert kept == best.certificate and kept.verify(f, *args) == best.cost == best.recompute_flops


@pytest.mark.parametrize("name", rematscope.__all__)
def test_help_shows_no_memory_address(name):
    assert not re.search(r"0x[0-9a-f]{6,}", pydoc.plain(pydoc.render_doc(getattr(rematscope, name))))


def test_the_default_cost_survives_a_pickle():
    assert pickle.loads(pickle.dumps(work)) is work

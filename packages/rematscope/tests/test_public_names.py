"""`rematscope`'s own names: there from the start, imported when asked for, and never a folder's module."""

import importlib
import pickle
import pkgutil
import types

import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

import rematscope


def test_what_is_listed_is_public():
    assert dir(rematscope) == sorted(rematscope.__all__)


def test_a_star_import_gives_every_public_name_and_no_other():
    given: dict = {}
    exec("from rematscope import *", given)
    assert given.keys() - {"__builtins__"} == set(rematscope.__all__)


def test_no_module_takes_the_place_of_a_public_name():
    for module in pkgutil.walk_packages(rematscope.__path__, "rematscope."):
        importlib.import_module(module.name)
    hidden = [name for name in rematscope.__all__ if isinstance(getattr(rematscope, name), types.ModuleType)]
    assert hidden == []


def test_a_certificate_can_be_kept_and_verified_later():
    def f(x, w, u):
        return jnp.sin(checkpoint_name(x @ w, "h") @ u)

    args = jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64))
    best = rematscope.plan(f, *args, saved="8 KiB")
    kept = pickle.loads(pickle.dumps(best.certificate))
    assert kept == best.certificate and kept.verify(f, *args) == best.cost == best.recompute_flops

"""The mutation tool, which no other test runs, finds what it names."""

import mutations
import pytest


@pytest.mark.parametrize("cls", mutations.REMEMBERED, ids=lambda cls: cls.__name__)
def test_methods_whose_results_mutants_share_exist(cls):
    assert all(callable(getattr(cls, name)) for name in mutations.REMEMBERED[cls])

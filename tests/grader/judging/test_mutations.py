"""The methods that the mutation tool names exist. No other test runs the tool."""

import mutations
import pytest


@pytest.mark.parametrize("cls", mutations.REMEMBERED, ids=lambda cls: cls.__name__)
def test_methods_whose_results_mutants_share_exist(cls):
    assert all(callable(getattr(cls, name)) for name in mutations.REMEMBERED[cls])

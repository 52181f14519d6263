import numpy as np
import pytest

from grader.stablehlo.value_fingerprints import COLUMNS, same, value_fingerprint


def rows(*arrays):
    return np.array([row for array in arrays for row in value_fingerprint(array)]).reshape(-1, COLUMNS)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_array_that_is_not_finite_is_no_other_one(value):
    array = np.arange(1, 65, dtype=np.float32)
    other = array[::-1].reshape(8, 8) * 3
    broken = array.copy()
    broken[5:7] = value, np.inf
    assert same(rows(array), rows(array.reshape(8, 8))).all()
    assert not same(rows(broken, other), rows(array)).any()
    assert not same(rows(array), rows(broken, other)).any()

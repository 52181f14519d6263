"""Numbers that windows read, against a walk over every place of every window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematscope.ir.conv_windows import conv_window_reads

small = st.integers(1, 7)


@pytest.mark.slow
@given(axis=small, outputs=small, window=small, stride=small, padding=st.integers(-3, 9), base=small, dilation=small)
def test_taps_are_those_of_a_walk_over_all_places(axis, outputs, window, stride, padding, base, dilation):
    numbers = {i * base for i in range(axis)}
    places = (i * stride + t * dilation - padding for i in range(outputs) for t in range(window))
    assert conv_window_reads(axis, outputs, window, stride, padding, base, dilation) == sum(
        place in numbers for place in places
    )


def test_long_windows_take_little_memory():
    """A convolution as long as its signal, as in state space models."""
    n = 2**20
    assert conv_window_reads(n, 2 * n - 1, n, padding=n - 1) == n * n

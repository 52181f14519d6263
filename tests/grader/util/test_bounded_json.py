"""Parsing untrusted JSON takes no more memory than the size of its text suggests."""

import pytest

from grader.util import bounded_json


@pytest.mark.parametrize(
    "text", ["[" + "[]," * 500_000 + "[]]", b"[" + b"1," * 10**6 + b"1]"], ids=["lists", "numbers"]
)
def test_json_that_takes_much_more_memory_than_its_text_is_refused(text):
    with pytest.raises(ValueError, match="more than 1,000,000 parts"):
        bounded_json.loads(text)

"""No existing file is overwritten."""

from grader.util.fresh_files import create_fresh_file


def test_a_fresh_file_has_a_name_that_none_has(tmp_path):
    path = tmp_path / "mine.json"
    assert [create_fresh_file(path).name for _ in range(3)] == ["mine.json", "mine_2.json", "mine_3.json"]

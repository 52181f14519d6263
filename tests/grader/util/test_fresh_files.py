"""No existing file is overwritten."""

from grader.util.fresh_files import fresh


def test_a_fresh_file_has_a_name_that_none_has(tmp_path):
    path = tmp_path / "mine.json"
    assert [fresh(path).name for _ in range(3)] == ["mine.json", "mine_2.json", "mine_3.json"]

"""A file is whole or as it was."""

import pytest

from rematscope.render.files import write_whole


@pytest.mark.parametrize("content", ["é\r\n", b"\xff"])
def test_a_file_contains_the_written_bytes(content, tmp_path):
    path = tmp_path / "grades.csv"
    path.write_text("before")
    write_whole(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fails", ["os.replace", "pathlib.Path.write_bytes"])
def test_a_failed_write_leaves_the_old_file_and_no_other(fails, tmp_path, monkeypatch):
    path = tmp_path / "grades.csv"
    path.write_text("before")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fails, full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "after")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]

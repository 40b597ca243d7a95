"""A submission's folder goes away, whatever the submission made in it."""

import os
import subprocess

from nbcourse.confined import folder


def test_no_tree_survives_its_removal(tmp_path):
    """Not one that is too deep for a path, nor one whose folders may not be entered."""
    deep = tmp_path / "tree"
    deep.mkdir()
    (tmp_path / "kept").write_text("elsewhere")
    place = os.open(deep, os.O_RDONLY)
    for level in range(3000):
        os.mkdir("moved-0", dir_fd=place)
        os.symlink(tmp_path / "kept", "link", dir_fd=place)
        if level % 100 == 0:
            os.mkdir("locked", 0, dir_fd=place)
        inner = os.open("moved-0", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    os.chmod(deep, 0)
    try:
        folder.remove(deep)
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    finally:
        subprocess.run(["rm", "-rf", deep], check=True)  # too deep for pytest

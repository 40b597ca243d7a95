"""Garbage is left alone for a while, and only for a while."""

import gc

import pytest

from nbcourse.lm.importing import without_collection


@pytest.mark.parametrize("before", [True, False])
def test_afterwards_it_is_collected_as_before(before):
    was = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:

        @without_collection()
        def fails():
            assert not gc.isenabled()
            raise KeyError

        for _ in range(2):
            with pytest.raises(KeyError):
                fails()
            assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()

"""How transformers is imported: it is large, and most of it comes when the first model is made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Leave garbage alone meanwhile, as a context or a decorator.

    Nearly all that is made while modules are imported stays. To look through it again and again for
    garbage takes a quarter of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

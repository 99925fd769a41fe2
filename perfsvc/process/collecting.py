"""How often Python collects garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Let Python's garbage collector run less often than by default, as each command does.

    A page of ten thousand series makes hundreds of thousands of objects, hardly any of them in a cycle. With the usual
    limits, the collector looks at all of them again and again, which takes 40 % of the time of such a page.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)

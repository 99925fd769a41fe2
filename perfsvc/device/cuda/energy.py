"""The energy of a sample: the GPU's own counter over a loop long enough for it."""

import time
from collections.abc import Callable

CHUNK_S = 0.02
"""Seconds of work between two looks at the counter, which moves in steps some tens of milliseconds apart."""


def joules_of(run: Callable[[int], float], counter: Callable[[], float | None], seconds: float) -> float | None:
    """Joules a sample, from one step of the counter to another at least ``seconds`` later.

    Of a kernel that is over before the host has launched the next one, some ten microseconds, it holds what the GPU
    draws while it waits.

    Args:
        run: runs so many samples and one more before them, and returns the seconds that one of them took.
        counter: joules that the GPU has used so far; None where it does not count.
        seconds: how much time to measure over, at least.

    Returns:
        None where the counter cannot say, or stands still.
    """
    count = max(1, int(CHUNK_S / run(1)))
    last, done = counter(), 0
    begun: tuple[float, float, int] | None = None  # when, joules, samples until then
    deadline = time.monotonic() + 2 * seconds + 1
    while last is not None and time.monotonic() < deadline:
        run(count)
        done += count + 1
        now, joules = time.monotonic(), counter()
        if joules is None or joules == last:
            last = joules
            continue
        last = joules
        if begun is None:
            begun = (now, joules, done)
        elif now - begun[0] >= seconds:
            return (joules - begun[1]) / (done - begun[2])
    return None

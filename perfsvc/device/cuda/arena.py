"""Memory for what is timed, at the same places in every process."""

SHARE = 0.25
"""Of the device's memory."""
PAGE_BYTES = 2 << 20
"""What the driver maps at a time, and what its large allocations begin at."""
ALIGNMENT = 512


def arena_bytes(memory_bytes: int) -> int:
    """How much of a device's memory the arena is to have."""
    return int(SHARE * memory_bytes) // PAGE_BYTES * PAGE_BYTES


class Arena:
    """One allocation, made before any other, that buffers are dealt from in order.

    Where arrays lie in physical memory moves times: a transposition by columns took 315 to 329 µs on an H100, by
    nothing but the places of its two matrices (docs/decisions.md). The first allocation of a fresh context lies at the
    same place in every process on an idle GPU, and a case finds all of it free, whatever was measured before it.

    Args:
        start: its address.
        nbytes: its size; 0 where there was no memory for it.
    """

    def __init__(self, start: int, nbytes: int) -> None:
        self._start = start
        self._nbytes = nbytes
        self._ends: dict[int, int] = {}  # of what is dealt, by address

    def allocate(self, nbytes: int) -> int | None:
        """The address of so many bytes beyond all that is dealt; None where there is no more room."""
        alignment = PAGE_BYTES if nbytes >= PAGE_BYTES else ALIGNMENT
        address = -(-max(self._ends.values(), default=self._start) // alignment) * alignment
        end = address + max(nbytes, 1)
        if end > self._start + self._nbytes:
            return None
        self._ends[address] = end
        return address

    def free(self, address: int) -> bool:
        """Takes a piece back; false where it is none of the arena's."""
        return self._ends.pop(address, None) is not None

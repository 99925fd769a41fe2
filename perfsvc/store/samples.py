"""A measurement's samples as one blob: little-endian float32, compressed with zlib.

A float32 keeps seven digits (a relative rounding of 6e-8 at most), far below what any clock resolves.
"""

import zlib
from collections.abc import Sequence

import numpy as np

_DTYPE = np.dtype("<f4")


def pack(samples: Sequence[float]) -> bytes:
    """Seconds, one a sample, as a blob."""
    return zlib.compress(np.asarray(samples, _DTYPE).tobytes())


def unpack(blob: bytes) -> tuple[float, ...]:
    """The inverse of ``pack``; raises ``zlib.error`` or ``ValueError`` where the blob is damaged."""
    return tuple(np.frombuffer(zlib.decompress(blob), _DTYPE).tolist())

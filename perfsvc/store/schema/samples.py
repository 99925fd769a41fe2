"""Samples as blobs: float32, compressed with zlib."""

import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfsvc.store.schema.column_types import report_damaged

_DTYPE = np.dtype("<f4")
DAMAGED: Final = (zlib.error, ValueError, TypeError, OverflowError, RecursionError)
"""What unpacking a damaged blob of samples or of batches raises."""

MOST_SAMPLES = 1 << 25
"""More samples than the message of a worker can hold; a forged blob of a few MB could otherwise fill the memory."""


def pack(samples: Sequence[float]) -> bytes:
    """Return samples in seconds as a blob."""
    return zlib.compress(np.asarray(samples, _DTYPE).tobytes())


def unpack(blob: bytes) -> tuple[float, ...]:
    """Return the samples of a blob; raises ``zlib.error`` or ``ValueError`` if the blob is damaged."""
    return tuple(unpack_array(blob).tolist())


def unpack_array(blob: bytes) -> NDArray[np.float32]:
    """Return the samples of a blob as an array, shape (samples,); raises what ``unpack`` raises."""
    return np.frombuffer(decompressed(blob), _DTYPE)


def readable_samples(blob: bytes, case: object) -> NDArray[np.float32] | None:
    """Return the samples of a case, shape (samples,); if the blob is damaged, report that and return None."""
    try:
        return unpack_array(blob)
    except DAMAGED:
        report_damaged(f"a blob of samples of {case}")
        return None


def decompressed(blob: bytes) -> bytes:
    """Return the content of a blob; raises ``zlib.error`` or ``ValueError`` if the blob is damaged."""
    stream = zlib.decompressobj()
    content = stream.decompress(blob, MOST_SAMPLES * _DTYPE.itemsize)
    if not stream.eof:
        raise ValueError("the blob ends early, or holds too many samples")
    return content

"""The kernels of our own that a device works with: the blocking kernel, clock stamps, eviction, digests and errors of results."""

from pathlib import Path

from perfsvc.model import Unit

GATE = "perfsvc_gate"
STAMP = "perfsvc_stamp"
EVICT = "perfsvc_evict"
DIGEST = "perfsvc_digest"

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int32", "uint32", "int64", "uint64")


def error_entry(dtype: str, reference_dtype: str) -> str:
    """The entry that finds the error of a result of one dtype against a reference of another; empty: there is none."""
    floats = dtype in FLOATS and reference_dtype == "float64"
    integers = dtype in INTEGERS and reference_dtype in {dtype, "int64"}
    return f"perfsvc_error_{dtype}_{reference_dtype}" if floats or integers else ""


def squares_entry(reference_dtype: str) -> str:
    """The entry that adds up the squares of a reference."""
    return f"perfsvc_squares_{reference_dtype}"


def unit(kind: str) -> Unit | None:
    """What has to be compiled before a device of this kind can be opened; None where it needs nothing."""
    if kind != "cuda":
        return None
    pairs = [(dtype, "float64") for dtype in FLOATS] + [(dtype, dtype) for dtype in INTEGERS]
    pairs += [(dtype, "int64") for dtype in INTEGERS if dtype != "int64"]
    squares = {squares_entry(reference): None for _, reference in pairs}
    entries = (GATE, STAMP, EVICT, DIGEST, *squares, *(error_entry(*pair) for pair in pairs))
    return Unit(Path(__file__).with_name("helper_kernels.cu"), entries)

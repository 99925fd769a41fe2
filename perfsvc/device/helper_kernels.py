"""perfsvc's own kernels for a GPU: the blocking kernel, clock stamps, digests and errors of results."""

from pathlib import Path

from perfsvc.model import Unit

BLOCKING_KERNEL = "perfsvc_block"
STAMP = "perfsvc_stamp"
DIGEST = "perfsvc_digest"

FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64")
INTEGERS = ("int32", "uint32", "int64", "uint64")


def error_entry(dtype: str, reference_dtype: str) -> str:
    """Return the name of the kernel that computes the error of a result; empty if no kernel fits these dtypes."""
    floats = dtype in FLOATS and reference_dtype == "float64"
    integers = dtype in INTEGERS and reference_dtype in {dtype, "int64"}
    return f"perfsvc_error_{dtype}_{reference_dtype}" if floats or integers else ""


def squares_entry(reference_dtype: str) -> str:
    """Return the kernel that sums the squares of a reference."""
    return f"perfsvc_squares_{reference_dtype}"


def unit(kind: str) -> Unit | None:
    """Return the unit of perfsvc's helper kernels for a kind of device; None if the kind needs no helper kernels."""
    if kind != "cuda":
        return None
    pairs = [(dtype, "float64") for dtype in FLOATS] + [(dtype, dtype) for dtype in INTEGERS]
    pairs += [(dtype, "int64") for dtype in INTEGERS if dtype != "int64"]
    squares = {squares_entry(reference): None for _, reference in pairs}
    entries = (BLOCKING_KERNEL, STAMP, DIGEST, *squares, *(error_entry(*pair) for pair in pairs))
    return Unit(Path(__file__).with_name("helper_kernels.cu"), entries)

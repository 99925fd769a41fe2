"""Faults of the driver: what the user can do about each."""

from perfsvc.errors import LaunchError

_CURES = {
    "illegal memory access": "run the case under compute-sanitizer: a thread reads or writes outside its buffers",
    "misaligned address": "align the addresses of vector loads and stores (float4)",
    "illegal instruction": "build the case again for this GPU",
    "invalid argument": "compare grid, block and dynamic shared memory with what `perfsvc devices` shows",
    "too many resources": "use fewer threads a block, or bound its registers with __launch_bounds__",
    "out of memory": "choose a smaller point, or free the GPU of other processes (nvidia-smi)",
    "timed out": "make the launch shorter, or run on a GPU without a display",
    "assert": "the kernel's own assert failed: its message is in the worker's output",
    "symbol not found": "correct the name of the kernel or of the __constant__ variable, and build the case again",
    "cooperative launch": "launch fewer blocks: all of them must fit on the GPU at once (occupancy x multiprocessors)",
    "cluster": "use smaller clusters, fewer threads or less shared memory: a cluster runs on one part (GPC) of the GPU",
    "PTX": "build the case again for this GPU",
    "image is invalid": "build the case again for this GPU",
    "no kernel image": "build the case for this GPU's architecture",
    "ECC": "take the GPU out of service and look at nvidia-smi -q -d ECC",
}
_OTHER_CURE = "run the case under compute-sanitizer, and see dmesg for the driver's own report (Xid)"
_KERNEL_CALLS = ("cuLaunchKernel", "cuModuleGetFunction", "cuFunc")
"""The driver calls that concern the kernel of a launch, and not only the device."""


def launch_error(text: str, entry: str, *, lost: bool) -> LaunchError:
    """Return the error for a failed driver call.

    Args:
        text: the name of the call, and the driver's message: ``cuLaunchKernel failed: invalid argument``.
        entry: the kernel of the last launch; empty if there was no launch.
        lost: whether the context is lost. The failed call may then be any call after the kernel at fault.
    """
    by_kernel = lost or text.startswith(_KERNEL_CALLS)
    where = f" (last launch: {entry})" if entry and by_kernel else ""
    cure = next((cure for sign, cure in _CURES.items() if sign in text), _OTHER_CURE)
    return LaunchError(f"{text}{where}", cure=cure, fatal=lost)

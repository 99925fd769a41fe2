"""What the driver's errors come from, as far as their text tells."""

_CURES = {
    "illegal memory access": "run the case under compute-sanitizer: a thread reads or writes outside its buffers",
    "misaligned address": "align what vector loads and stores (float4) are given",
    "illegal instruction": "build the case anew for this GPU",
    "invalid argument": "compare grid, block and dynamic shared memory with what `perfsvc devices` shows",
    "too many resources": "use fewer threads a block, or bound its registers with __launch_bounds__",
    "out of memory": "choose a smaller point, or free the GPU of other processes (nvidia-smi)",
    "timed out": "make the launch shorter, or run on a GPU without a display",
    "assert": "the kernel's own assert failed: its message is in the worker's output",
    "symbol not found": 'correct the name, and declare kernels extern "C" so that the compiler keeps theirs',
    "PTX": "build the case anew for this GPU",
    "image is invalid": "build the case anew for this GPU",
    "no kernel image": "build the case for this GPU's architecture",
    "ECC": "take the GPU out of service and look at nvidia-smi -q -d ECC",
}
_OTHER_CURE = "run the case under compute-sanitizer, and see dmesg for the driver's own report (Xid)"
_CALLS_OF_A_KERNEL = ("cuLaunchKernel", "cuModuleGetFunction", "cuFunc")


def cure_of(text: str) -> str:
    """What to do about an error that the driver worded so."""
    return next((cure for sign, cure in _CURES.items() if sign in text), _OTHER_CURE)


def is_of_a_kernel(text: str) -> bool:
    """Whether the error came from the call that launches a kernel or prepares it."""
    return text.startswith(_CALLS_OF_A_KERNEL)

"""The worker process: opens one device, measures the jobs it is sent, and ends when the pool hangs up.

Run by ``perfsvc.measure.pool`` as ``python -m perfsvc.measure.worker SOCKET-DESCRIPTOR PARENT-PID``. It is told which
device to open when it may have it; what it has to import, it imports meanwhile. Its standard output belongs to the code
it measures; all it has to say goes over the socket.
"""

import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import threading

from perfsvc.device.cuda.early import retain_context
from perfsvc.measure import wire

PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> int:
    """Serves jobs until the pool hangs up; returns the process's exit status."""
    _die_with(parent)
    imports = threading.Thread(target=importlib.import_module, args=("perfsvc.measure.serving",))
    imports.start()
    with socket.socket(fileno=descriptor) as pool:
        opening = wire.receive(pool)
        if opening and _is_cuda(opening):
            retain_context()
        imports.join()
        if opening is None:  # started ahead, and not needed
            return 0
        from perfsvc.measure.serving import serve

        return serve(pool, opening)


def _is_cuda(opening: wire.Frame) -> bool:
    device = json.loads(opening.text).get("body", {}).get("device", "")
    # The one device that this process sees: which of several was meant, only the import of PyCUDA would tell.
    return bool(device == f"cuda:{os.environ.get('CUDA_VISIBLE_DEVICES')}")


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when the pool dies: a hung launch never sees the socket close."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("perfsvc's worker lost its parent while it started")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what is sent to the whole group is the pool's, which ends its workers
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

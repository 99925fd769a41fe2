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
from perfsvc.device.telemetry import Board
from perfsvc.measure import wire

PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> int:
    """Serves jobs until the pool hangs up; returns the process's exit status."""
    _die_with(parent)
    imports = threading.Thread(target=importlib.import_module, args=("perfsvc.measure.serving",))
    imports.start()
    with socket.socket(fileno=descriptor) as pool:
        opening = wire.receive(pool)
        board = _begin(opening) if opening else None
        imports.join()
        if opening is None:  # started ahead, and not needed
            return 0
        from perfsvc.measure.serving import serve

        return serve(pool, opening, board)


def _begin(opening: wire.Frame) -> Board | None:
    """Creates the context of a CUDA device ahead of all else, after a look at who is on the board without us."""
    uuid = json.loads(opening.text).get("body", {}).get("visible", "")
    if not uuid:  # no board of CUDA's
        return None
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid  # the driver looks there when it starts, which it has not yet
    board = Board(uuid)
    retain_context()
    return board


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

"""Compete with a run for a GPU: multiply matrices for a share of the time, until standard input ends.

    python tests/benchmarks/competing_load.py --device cuda:0 --duty 0.5

It is a process of its own and takes no lock, like another user's job. It prints ``at work`` when it begins to work.
"""

import argparse
import contextlib
import select
import sys
import time
from collections.abc import Callable

from workbench import Prepared, power_hungry

from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device

QUEUED = 8  # about 1.5 ms
PERIOD_S = 0.2


def main() -> None:
    """Work until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="one GPU (default: cuda:0)")
    parser.add_argument("--duty", type=float, default=1.0, help="share of the time that it works (default: 1)")
    options = parser.parse_args()
    load = power_hungry(options.device)
    with (
        contextlib.closing(open_device(load.device.spec, load.helper_kernels)) as device,
        Prepared(device, load.tasks[0]) as queue,
    ):
        work(device, queue, options.duty)


def work(device: Device, queue: Callable[[], None], duty: float) -> None:
    """Queue products for the working share of each period, and nothing for the rest."""
    print("at work", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        while time.monotonic() - began < duty * PERIOD_S:
            for _ in range(QUEUED):
                queue()
            device.synchronize()
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))


if __name__ == "__main__":
    main()

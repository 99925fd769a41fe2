"""A load that competes with a run for a GPU: tensor cores busy for a share of the time, until standard input ends.

    python benchmarks/nights/load.py --device cuda:0 --duty 0.5

A process of its own with a context of its own, as a stranger's job would be; it takes no lock. It says ``at work`` on
standard output when it is.
"""

import argparse
import select
import sys
import time
from pathlib import Path

import numpy as np
import pycuda.driver as drv

from perfsvc import build
from perfsvc.build import Binary, Cache
from perfsvc.device.cuda import listing
from perfsvc.device.find import find
from perfsvc.model import Unit

BURN = Unit(Path(__file__).parent / "suite" / "furnace" / "burn.cu", ("burn",))
BLOCK, BLOCKS_OF_A_MULTIPROCESSOR = 256, 4
LOOPS = 5000  # about a millisecond
PERIOD_S = 0.2


def main() -> None:
    """Works until nobody holds its standard input any more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="one GPU (default: cuda:0)")
    parser.add_argument("--duty", type=float, default=1.0, help="share of the time that it works (default: 1)")
    options = parser.parse_args()
    (info,) = find([options.device])
    code = build.compile_all({BURN}, build.toolchain_for(info.target), Cache())[BURN]
    if not isinstance(code, Binary):
        raise code
    listing.start()
    context = drv.Device(listing.ordinal_of(info.uuid)).make_context()
    try:
        work(code.code, info.multiprocessors, options.duty)
    finally:
        context.pop()
        context.detach()


def work(code: bytes, multiprocessors: int, duty: float) -> None:
    """Two launches are always queued, so that the device never waits while it is to work."""
    blocks = BLOCKS_OF_A_MULTIPROCESSOR * multiprocessors
    memory = drv.mem_alloc(4 * blocks * BLOCK)
    burn = drv.module_from_buffer(code).get_function("burn")
    events = [drv.Event(), drv.Event()]

    def launch(event: drv.Event) -> None:
        burn(memory, memory, np.int32(LOOPS), grid=(blocks, 1), block=(BLOCK, 1, 1))
        event.record()

    for event in events:
        launch(event)
    print("at work", flush=True)
    turn, began = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        if time.monotonic() - began > duty * PERIOD_S:
            drv.Context.synchronize()
            time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))
            began = time.monotonic()
        events[turn].synchronize()
        launch(events[turn])
        turn = 1 - turn
    drv.Context.synchronize()


if __name__ == "__main__":
    main()

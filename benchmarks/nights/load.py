"""A load that competes with a run for a GPU: products of matrices for a share of the time, until standard input ends.

    python benchmarks/nights/load.py --device cuda:0 --duty 0.5

The fastest product in bf16 of the built-in suite that the board can run, again and again: on an H100 it takes all the
power that the board may have, which lowers the clocks for whoever else works there. A process of its own, as a
stranger's job would be: it takes no lock. It says ``at work`` on standard output when it is.
"""

import argparse
import contextlib
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

from perfsvc import build, suite
from perfsvc.build import Binary, Cache
from perfsvc.device import instruments
from perfsvc.device.find import find, open_device
from perfsvc.device.protocol import Device
from perfsvc.measure.memory import Memory
from perfsvc.measure.program import Program
from perfsvc.model import Call
from perfsvc.suite import Selection

SUITE = Path(__file__).resolve().parents[2] / "kernels"
PRODUCT = "matmul_bf16"
QUEUED = 8  # about 1.5 ms
PERIOD_S = 0.2


def main() -> None:
    """Works until nobody holds its standard input any more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="one GPU (default: cuda:0)")
    parser.add_argument("--duty", type=float, default=1.0, help="share of the time that it works (default: 1)")
    options = parser.parse_args()
    (info,) = find([options.device])
    specs = suite.discover(SUITE).resolve(Selection((PRODUCT,)), "full")
    ours = [spec for spec in specs if not any(isinstance(step, Call) for step in spec.steps)]
    fastest = [spec for spec in ours if not suite.unmet(spec, info)][-1]  # the last rung
    instrument = instruments.unit(info.kind)
    units = [*fastest.units, *filter(None, [instrument])]
    built = build.compile_all(set(units), build.toolchain_for(info.target), Cache())
    codes = {unit: code_of(built[unit]) for unit in units}
    matrices, _ = suite.make_arrays(fastest)
    with (
        contextlib.closing(open_device(info.spec, codes[instrument] if instrument else b"")) as device,
        Memory(device, fastest.buffers) as memory,
    ):
        memory.reset(lambda name, address: device.upload(address, matrices[name]))
        record = fastest.record([""] * len(fastest.units), "")
        program = Program(device, record, [codes[unit] for unit in fastest.units], memory, {})
        work(device, program.queue, options.duty)


def code_of(built: Binary | Exception) -> bytes:
    """The binary of a unit; raises what kept it from being compiled."""
    if isinstance(built, Exception):
        raise built
    return built.code


def work(device: Device, queue: Callable[[], None], duty: float) -> None:
    """Queues products while it is to work, and nothing for the rest of each period."""
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

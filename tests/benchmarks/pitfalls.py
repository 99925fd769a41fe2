"""Show five effects on the time of a kernel that are not the kernel's, and that perfsvc's timing excludes.

    python tests/benchmarks/pitfalls.py [--device cuda:0] [--json FILE]

1. Samples queued behind a running one: the same launches, one by one and twenty at a time behind one blocking kernel.
2. Places: a transposition by columns with its two matrices at different places of one allocation.
3. Kept lines: a kernel that asks the L2 cache to keep its lines, after a write to the whole cache, and after perfsvc's
   eviction, which first makes such lines ordinary.
4. Time between the eviction of the cache and the launch: none, and 1 ms.
5. An earlier load: a matrix product after a second at the GPU's power limit, and pauses of several lengths.

Works on the device's own stream, below perfsvc's timing, to show the effects that the timing is built against.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from workbench import NVBENCH_SUITE, Prepared, finish, parsed, power_hungry, ready, table

from perfsvc import build
from perfsvc.build import Binary, Cache
from perfsvc.device.find import open_device
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import BufferArg, Launch, Role, Unit
from perfsvc.process.shared_memory import take_inputs

KEEP = Unit(Path(__file__).resolve().parents[1] / "gpu" / "kernels.cu", ("keep",))
SHORT, PADDED, NAIVE = "vec_add/plain[n=65536]", "transpose/padded[n=4096]", "transpose/naive[n=4096]"
TILED = "matmul/tiled[n=1024]"
MIB = 1 << 20
SAMPLES = 60
TOGETHER = 20
LOAD_S, RESTS_S = 1.0, (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
PLACES_MIB = ((0, 66), (0, 68), (0, 100), (0, 132), (2, 130), (100, 300))

Sample = Callable[[], None]


def main() -> int:
    """Show all five effects."""
    options = parsed(__doc__, ("--device", "cuda:0", "one GPU"))
    cases = ready(NVBENCH_SUITE, options.device, Sampling())
    if cases.device.kind != "cuda":
        sys.exit("--device: only a GPU has these effects")
    tasks = {task.record.case.id: task for task in cases.tasks}
    bench = Bench(open_device(cases.device.spec, cases.helper_kernels))
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for name, show in {
            "queued behind": lambda: [bench.queued_behind(tasks[case]) for case in (SHORT, PADDED)],
            "places": lambda: bench.places(tasks[NAIVE]),
            "kept lines": lambda: [bench.kept_lines()],
            "time after eviction": lambda: [bench.after_eviction(tasks[case]) for case in (SHORT, PADDED)],
            "load before": lambda: bench.load_before(tasks[TILED], power_hungry(options.device).tasks[0]),
        }.items():
            found[name] = show()
            print(f"\n{name}\n" + table(list(found[name][0]), [list(map(str, row.values())) for row in found[name]]))
    finally:
        bench.device.close()
    return finish([], options.json, device=cases.device.model, driver=cases.device.driver, found=found)


class Bench:
    """A device and the parts of its timing."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._timer = device._timer
        self._stream = device._stream
        self._eviction = device._timer._eviction
        self._nbytes = 2 * device.info.l2_bytes
        self._eviction.prepare(self._nbytes)

    def queued_behind(self, task: Task) -> dict[str, Any]:
        """Time a case one by one, and twenty samples behind one blocking kernel: the first samples and the last."""
        import pycuda.driver as drv

        pairs = [(drv.Event(), drv.Event()) for _ in range(TOGETHER)]
        with Prepared(self.device, task) as sample:
            alone = self._median_us(sample)
            rounds = []
            for _ in range(SAMPLES // TOGETHER * 5):
                with self._timer.blocking_kernel:
                    for start, end in pairs:
                        self._eviction.queue(self._nbytes)
                        start.record(self._stream)
                        sample()
                        end.record(self._stream)
                self._stream.synchronize()
                rounds.append([end.time_since(start) * 1e3 for start, end in pairs])
        of_place = np.median(rounds, axis=0)
        return {
            "case": task.record.case.id,
            "one by one µs": f"{alone:.3f}",
            f"{TOGETHER} together, all but the last five µs": f"{np.median(of_place[:-5]):.3f}",
            "the last µs": f"{of_place[-1]:.3f}",
        }

    def places(self, task: Task) -> list[dict[str, Any]]:
        """Time a transposition with its matrices at several places of one allocation."""
        (launch,) = (step for step in task.record.steps if isinstance(step, Launch))
        roles = {buffer.array.name: buffer.role for buffer in task.record.buffers}
        inputs = take_inputs(task.arrays.make())
        (matrix,) = inputs.values()
        module = self.device.load(task.modules[0])
        start = self.device.allocate(512 * MIB)
        rows = []
        for source, target in PLACES_MIB:
            self.device.upload(start + source * MIB, matrix)
            at = {Role.INPUT: np.uint64(start + source * MIB), Role.OUTPUT: np.uint64(start + target * MIB)}
            args = [
                at[roles[arg.buffer]] if isinstance(arg, BufferArg) else np.dtype(arg.dtype).type(arg.value)
                for arg in launch.args
            ]
            median = self._median_us(lambda args=args: self.device.launch(module, launch, args))
            rows.append({"input at MiB": source, "output at MiB": target, "median µs": f"{median:.2f}"})
        self.device.free(start)
        return rows

    def kept_lines(self) -> dict[str, Any]:
        """Time a kernel that keeps its lines in the cache, after a write alone and after perfsvc's eviction."""
        info = self.device.info
        built = build.compile_all([KEEP], build.toolchain_for(info.target), Cache())[KEEP]
        assert isinstance(built, Binary), built
        module = self.device.load(built.code)
        count = info.l2_bytes // 4 // 8
        data, out = self.device.allocate(4 * count), self.device.allocate(4)
        self.device.fill(data, 4 * count, 0)
        words = Launch(0, "keep", (2 * info.multiprocessors, 1, 1), (256, 1, 1), ())
        args = (np.uint64(data), np.uint64(out), np.int32(count))
        row: dict[str, Any] = {"bytes kept": 4 * count}

        def sample() -> None:
            self.device.launch(module, words, args)

        prepare = self._eviction.prepare
        self._eviction.prepare = lambda _: None
        row["after a write alone µs"] = f"{self._median_us(sample):.3f}"
        self._eviction.prepare = prepare
        row["after perfsvc's eviction µs"] = f"{self._median_us(sample):.3f}"
        for address in (out, data):
            self.device.free(address)
        return row

    def after_eviction(self, task: Task) -> dict[str, Any]:
        """Time a case launched right after the eviction, and 1 ms later."""
        import pycuda.driver as drv

        start, end = drv.Event(), drv.Event()
        medians = []
        with Prepared(self.device, task) as sample:
            for rest_s in (0.0, 1e-3):
                times = []
                for _ in range(SAMPLES):
                    with self._timer.blocking_kernel:
                        self._eviction.queue(self._nbytes)
                        if rest_s:
                            self._timer.blocking_kernel.release()
                            self._stream.synchronize()
                            time.sleep(rest_s)
                            self._timer.blocking_kernel.launch()
                        start.record(self._stream)
                        sample()
                        end.record(self._stream)
                    self._stream.synchronize()
                    times.append(end.time_since(start) * 1e3)
                medians.append(statistics.median(times))
        return {
            "case": task.record.case.id,
            "at once µs": f"{medians[0]:.3f}",
            "after 1 ms µs": f"{medians[1]:.3f}",
            "change": f"{medians[1] / medians[0] - 1:+.2%}",
        }

    def load_before(self, task: Task, load: Task) -> list[dict[str, Any]]:
        """Time a case on an idle GPU, and after a load and each pause; show the clock with the time."""
        rows = []
        with Prepared(self.device, task) as sample, Prepared(self.device, load) as burn:
            for rest_s in (None, *RESTS_S):
                end = time.monotonic() + (LOAD_S if rest_s is not None else 0.0)
                while time.monotonic() < end:
                    burn()
                    self._stream.synchronize()
                time.sleep(LOAD_S if rest_s is None else rest_s)
                batch = self._timer.batch(sample, TOGETHER, evict_bytes=self._nbytes, blocked=True)
                rows.append(
                    {
                        "before": "idle" if rest_s is None else f"load, {rest_s:g} s of rest",
                        "median µs": f"{statistics.median(batch.samples_s) * 1e6:.2f}",
                        "clock GHz": f"{(batch.conditions.sm_clock_hz or 0) / 1e9:.3f}",
                    }
                )
        return rows

    def _median_us(self, sample: Sample) -> float:
        batch = self._timer.batch(sample, SAMPLES, evict_bytes=self._nbytes, blocked=True)
        return statistics.median(batch.samples_s) * 1e6


if __name__ == "__main__":
    sys.exit(main())

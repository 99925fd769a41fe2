"""Shared by tests of series and of the fleet: nights of two hosts with three GPUs of one model, in a database."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from perfsvc.model import (
    Batch,
    Case,
    CheckedKernel,
    CheckVerdict,
    Conditions,
    DeviceInfo,
    Environment,
    Estimate,
    Expected,
    ExpectedKind,
    FullEnvironment,
    Kind,
    Measurement,
    Peak,
    Provenance,
    ReplayRecord,
    Slowdown,
    StaticFacts,
    Status,
    Verdict,
    Work,
    digest,
)
from perfsvc.store import CaseCode, MeasurementEntry, RunState, Store

SIZES = {"clock_hz": 1.98e9, "memory_bytes": 80 * 2**30, "l2_bytes": 50 * 2**20}
GPU = DeviceInfo("cuda", "cuda:GPU-0", "GPU-0", "NVIDIA H100", "sm_90", **SIZES)
GPUS = {"alpha": ("GPU-0", "GPU-1"), "beta": ("GPU-2",)}
"""The GPUs of each host. GPU-1 is slower than the other two by ``LAG``; GPU-2 is missing at the end."""
LAG = 1.06
TILED = Case("transpose", "tiled", (("n", 4096),))
NAIVE = Case("transpose", "naive", (("n", 4096),))
HOSTILE = Case("<img src=x onerror=boom()>", "x" * 10_000, (("n", "<b>4</b>"),))
CASES = {TILED: 1e-4, NAIVE: 3e-4, HOSTILE: 2e-4}
HOSTILE_TEXT = "</script><script>boom()</script> \u202eevil \x1b[31m" + "y" * 10_000
METRIC = "share <b>of</b> hits"
OLD, NEW = Environment("575.1", "nvcc 12.9", 700.0), Environment("580.1", "nvcc 12.9", 700.0)
BEGUN = datetime(2026, 3, 1, 2, tzinfo=UTC)
FACTS = StaticFacts(32, 0, 0, 0, 0, 1, None, "5a" * 32)


def fill(store: Store, nights: int = 20, cases: dict[Case, float] | None = None, model: str = GPU.model) -> list[int]:
    """Store nights of both hosts, and return the runs of the host alpha.

    GPU-0 gets slower in the last night, with more registers and spills. The driver changes in the sixth night, a person
    excludes the third night of alpha, GPU-0 is hot in the eighth, and GPU-2 is missing in the last two.
    """
    for uuid in (uuid for uuids in GPUS.values() for uuid in uuids):
        store.devices.put(replace(GPU, uuid=uuid, spec=f"cuda:{uuid}", model=model))
    store.devices.put(replace(GPU, uuid="GPU-0+GPU-1", spec="cuda:GPU-0+GPU-1", model=model))
    runs = {host: [] for host in GPUS}
    cases = CASES if cases is None else cases
    binaries = [binary_of(store, f"{which} cubin of the fleet") for which in ("old", "new")]
    night_of_host = {}
    for number in range(nights):
        last = number == nights - 1
        commit = f"{'b' if last else 'a'}{number:02d}" + "0" * 7
        for host, uuids in GPUS.items():
            at = BEGUN + timedelta(days=number, hours=len(host))
            night = store.nights.begin(
                host=host, started=at, suite="kernels", command_line="perfsvc nightly", settings={"run": {}}
            )
            provenance = Provenance(at, "perfsvc nightly", "kernels", commit, host=host, scope="kernels")
            run = store.runs.begin(provenance, night=night)
            runs[host].append(run)
            is_missing = host == "beta" and number >= nights - 2
            for uuid in () if is_missing else uuids:
                slower = LAG if uuid == "GPU-1" else 1.2 if uuid == "GPU-0" and last else 1.0
                environment = OLD if number < 5 else NEW
                hot = uuid == "GPU-0" and number == 7
                binary = binaries[int(last and uuid == "GPU-0")]
                measure(store, run, uuid, cases, slower=slower, environment=environment, binary=binary, hot=hot)
            store.devices.put_peaks(run, {uuid: Peak(2.6e12 + 1e9 * number, 3.0e12) for uuid in uuids})
            memory = {"gpu.ecc": "on" if number < 5 else "off"}
            store.devices.put_full_environment(
                run, FullEnvironment({"host.kernel": f"6.{number // 5}"}, dict.fromkeys(uuids, memory))
            )
            store.runs.end(run, RunState.FINISHED)
            store.nights.end(night, RunState.FINISHED, 0)
            night_of_host[host] = night
        _check(store, cases, commit, replace(FACTS, registers=40, spill_store_bytes=16) if last else FACTS)
    store.exclusions.exclude(runs["alpha"][2], None, reason="the fan was broken <b>", by="Ada <i>")
    seen = [
        Expected(ExpectedKind.GPU, uuid, host, night_of_host[host], BEGUN, "kernels", "", model)
        for host, uuids in GPUS.items()
        for uuid in uuids
    ]
    store.expectations.update(seen, [])
    return runs["alpha"]


def measure(
    store: Store,
    run: int,
    uuid: str,
    cases: dict[Case, float],
    *,
    slower: float,
    environment: Environment,
    binary: int | None,
    hot: bool,
) -> None:
    """Store the measurements of a run on a GPU: three replicas of each case, with times multiplied by ``slower``."""
    conditions = Conditions(
        1.7e9, temperature_c=61.0, power_w=400.0, slowdowns=(Slowdown.THERMAL,) if hot else (Slowdown.POWER_CAP,)
    )
    for place, (case, time_s) in enumerate(cases.items()):
        entries = []
        for replica in range(3):
            noise = 1 + 0.0007 * ((run * 5 + place + replica) % 4)
            samples = tuple(time_s * slower * noise * (1 + 0.0004 * ((7 * k) % 5)) for k in range(20))
            batches = [Batch(samples, conditions=conditions)]
            batches += [Batch(samples, rejected="thermal slowdown", conditions=conditions)] if hot else []
            measurement = Measurement(
                case,
                uuid,
                replica,
                Status.OK,
                samples_s=samples,
                max_error=1e-7 * (1 + replica),
                metrics={"energy_j": 0.02 * slower * noise, METRIC: 0.5},
                batches=tuple(batches),
            )
            middle = sorted(samples)[10]
            estimate = Estimate(middle, min(samples), max(samples), len(samples))
            work = Work(read_bytes=120_000_000, written_bytes=120_000_000)
            entries.append(MeasurementEntry(measurement, environment, work, estimate, binary))
        store.measurements.put(run, entries)


def binary_of(store: Store, name: str, sources: dict[str, bytes] | None = None) -> int:
    """Store a binary whose code is a name, and return its number."""
    code = name.encode()
    record = ReplayRecord(TILED, Kind.KERNEL, (), (), (digest(code),), digest(b"# bench.py"), seed=0)
    return store.binaries.put([CaseCode(record, {digest(code): code}, b"# bench.py", sources or {})])[0]


def _check(store: Store, cases: Sequence[Case] | dict[Case, float], commit: str, facts: StaticFacts) -> None:
    kernels = [CheckedKernel(case, "sm_90", name, facts=facts, source="c" * 64) for case in cases for name in "ab"]
    provenance = Provenance(BEGUN, "perfsvc check", "kernels", commit, host="alpha", scope="kernels")
    store.checks.put(provenance, [CheckVerdict(kernel, Verdict.NEW) for kernel in kernels], toolkit=NEW.toolkit)

"""Write the dump of the newest schema revision: ``python tests/data/schemas/make.py``, once, with its migration.

A dump is never written again: it holds what perfsvc stored at that revision. tests/unit/store/test_upgrades.py upgrades
and reads it.
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from perfsvc import model
from perfsvc.store import CaseCode, MeasurementEntry, RunState, StageRow, StageState, Store
from perfsvc.store.remote.rows import AuditEntry
from perfsvc.store.schema.engine import transaction
from perfsvc.store.schema.night_tables import Deliveries, Messages, ReceivedRuns, Tokens
from perfsvc.store.schema.tables import Imports

KEY = "5e" * 32  # that of tests/conftest.py
GPU = model.DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H100", "sm_90", "9.0", 132, interconnect="NVLink")
TILED = model.Case("transpose", "tiled", (("n", 64),))
SHARED = replace(TILED, variant="shared", formerly=("tiled",))
NAIVE = replace(TILED, variant="naive")
WARM = model.Conditions(1.5e9, 2.5e9, 60.0, 500.0, (model.Slowdown.POWER_CAP,))
HOT = model.Conditions(1.0e9, 2.5e9, 90.0, 400.0, (model.Slowdown.THERMAL,), 1, (48,), (99,))


def fill(store: Store) -> None:
    """Store two runs, a rename between them, and at least one row in every table."""
    store.devices.put(GPU)
    started = datetime(2025, 1, 1, tzinfo=UTC)
    origin = model.Provenance(started, "perfsvc run", "kernels", "abc", host="box", scope="kernels")
    first = store.runs.begin(replace(origin, label="first night", packages={"numpy": "2.4.6"}))
    common = {"host.kernel": "6.1", "variable.CUDA_X": "1", "package.triton": "3.4.0"}
    store.devices.put_full_environment(first, model.FullEnvironment(common, {"GPU-1": {"gpu.ecc": "on"}}))
    record = model.ReplayRecord(
        TILED, model.Kind.KERNEL, (), (), (model.digest(b"cubin"),), model.digest(b"# bench.py"), seed=7
    )
    code = CaseCode(record, {model.digest(b"cubin"): b"cubin"}, b"# bench.py", {"tiled.cu": b"// tiled"})
    (binary,) = store.binaries.put([code])
    put(store, first, model.Measurement(TILED, "GPU-1", 0, model.Status.OK, samples_s=(0.5, 0.25)), 0.375, binary)
    python = model.PythonCode(
        (model.Package("triton", "3.4.0", "aa"),), (), (("helpers", model.digest(b"# helpers.py")),)
    )
    files = {model.digest(b"# helpers.py"): b"# helpers.py"}
    again = model.Measurement(TILED, "GPU-1", 1, model.Status.OK, samples_s=(0.125,), python=python, files=files)
    put(store, first, again, 0.125, binary)
    put(store, first, model.Measurement(NAIVE, "GPU-1", 0, model.Status.FAILED, reason="does not compile"), None, None)
    store.runs.end(first, RunState.FINISHED)
    put_imported(store, first, started)
    series = model.Series(SHARED, "GPU-1", GPU.model)
    store.verdicts.put(first, [model.Judgement(replace(series, case=TILED), model.Verdict.NEW)])
    night = store.nights.begin(
        host="box", started=started, suite="kernels", command_line="perfsvc nightly", settings={"replicas": 3}
    )
    second = store.runs.begin(replace(origin, started=started.replace(day=2), commit="def", dirty=True), night=night)
    store.devices.put_full_environment(
        second, model.FullEnvironment(common | {"variable.CUDA_X": "2"}, {"GPU-1": {"gpu.ecc": "off"}})
    )
    renamed = model.Measurement(
        SHARED,
        "GPU-1",
        0,
        model.Status.OK,
        samples_s=(0.5,),
        places_s=(0.5, 0.75),
        metrics={"overlap": 0.75},
        batches=(
            model.Batch((0.5,), blocked=True, kept_ahead=True, busy_s=0.625, conditions=WARM),
            model.Batch(
                (0.75, 1.0), blocked=True, kept_ahead=False, busy_s=2.0, rejected="thermal slowdown", conditions=HOT
            ),
        ),
        warmup=3,
        note="the host fell behind once",
        wall_s=4.0,
        check_s=0.25,
        sampling_s=3.5,
        busy_s=3.25,
    )
    put(store, second, renamed, 0.5, None, variant_index=2, relative_to="copy")
    store.devices.put_peaks(second, {"GPU-1": model.Peak(2.0e12, 2.5e12)})
    store.devices.put_gpu_peak(replace(GPU, driver="580.1", power_limit_w=700.0), "tf32", 4.0e14, version=1)
    store.runs.put_over_budget(second, [("GPU-1", NAIVE, model.CacheState.COLD)])
    store.runs.end(second, RunState.INTERRUPTED)
    unchanged = model.Judgement(
        series, model.Verdict.UNCHANGED, "", 1.0, 0.9, 1.1, first, second, 0.25, 0.5, 0.125, 6, 1, 3, 0.0625
    )
    slower = replace(unchanged, verdict=model.Verdict.REGRESSION, cause=model.Cause.KERNEL)
    store.verdicts.put(second, [unchanged, replace(slower, series=replace(series, metric="overlap"))])
    suspect = model.Suspect(slower, model.ChangeKind.REGRESSION, model.Direction.SLOWER)
    root_cause = model.RootCause("abc..def", "the old one is faster", (suspect,))
    (finding,) = store.findings.update(second, [], [root_cause]).raised
    store.findings.assign(finding, "bob", by="ann")
    until = started.replace(year=started.year + 1)
    store.findings.set_state(finding, model.FindingState.IGNORED, reason="wanted", by="ann", until=until)
    store.confirmations.put(
        model.Confirmation(
            suspect,
            model.Cause.KERNEL,
            "the old one is faster",
            threshold=0.125,
            seed=7,
            budget_s=20.0,
            verdict=model.Verdict.REGRESSION,
            ratio=2.0,
            low=1.5,
            high=2.5,
            looks=1,
            drift=1.0,
            same_code=False,
            wall_s=4.0,
            baseline=(model.Measurement(TILED, "GPU-1", 1, model.Status.OK, samples_s=(0.25, 0.5)),),
            candidate=(model.Measurement(SHARED, "GPU-1", 0, model.Status.OK, samples_s=(0.5, 1.0)),),
        )
    )
    again = model.Measurement(TILED, "GPU-1", 0, model.Status.OK, samples_s=(0.25,), metrics={"energy_j": 0.5})
    judged = replace(suspect.judgement, series=replace(series, metric="energy_j"))
    store.confirmations.put(
        model.Confirmation(replace(suspect, judgement=judged), model.Cause.NOISE, "", 0.01, 7, 20.0, baseline=(again,))
    )
    store.baselines.pin(first, [series], by="ann", comment="release")
    put_why(store, first, second, binary)
    put_check(store, origin)
    put_night(store, night, started)
    put_absence(store, night, started)
    put_bisection(store, finding, suspect.series)
    put_exclusion(store, first)


WHY = model.Reason(
    model.ReasonKind.OCCUPANCY,
    0.9,
    "32 → 16 warps",
    (model.Evidence("achieved_occupancy", 0.5, None),),
    (model.ProfilerRule("Occupancy", "few warps", 0.5),),
    counted="instructions",
    before=(model.HotLine(0.75, "LDG.E R2, [R4.64]", 2),),
    after=(model.HotLine(1.0, "LDG.E R2, [R4.64]", 1, model.SourceLine("tile.cuh", 31), "t = a[i];", changed=True),),
)


INSTRUCTIONS = (model.Instruction(16, "LDG.E R2, [R4.64]", {"instructions": 64.0}, model.SourceLine("tile.cuh", 31)),)


def put_imported(store: Store, run: int, imported: datetime) -> None:
    """Store that a run was imported from a file."""
    part = {"digest": "ab" * 32, "run_id": run, "format": "nvbench", "path": "out.json", "imported_at": imported}
    with transaction(store.database.engine, writes=True) as connection:
        connection.execute(insert(Imports), [part])


def put_why(store: Store, first: int, second: int, binary: int) -> None:
    """Store a profile with metrics, a failed one, and their explanation."""
    profile = model.Profile(
        "tiled",
        {"duration_s": 0.25, "registers": None},
        (model.ProfilerRule("Occupancy", "few warps", 0.5),),
        instructions=INSTRUCTIONS,
        kernels=(model.ProfiledKernel("head", 0.125), model.ProfiledKernel("tiled", 0.25)),
    )
    counted = model.ProfileResult(
        TILED, first, binary, "GPU-1", GPU.model, "ncu", "full", profile, launch=0, wall_s=7.0
    )
    numbers = (
        *store.profiles.put([counted], b"report"),
        *store.profiles.put(
            [replace(counted, run=second, binary=None, profile=None, reason="no permission", cure="ask")]
        ),
    )
    store.profiles.put_explanation(
        model.CaseExplanation(SHARED, "GPU-1", GPU.model, first, second, "fewer warps", (WHY,), 2.0, profiles=numbers)
    )


def put_check(store: Store, origin: model.Provenance) -> None:
    """Store a check of a new kernel and of one that does not compile."""
    facts = model.StaticFacts(32, 0, 0, 0, 4224, 1, (("global", 8),), "aa")
    kernel = model.CheckedKernel(
        TILED, "sm_90", "tiled", facts=facts, occupancy=model.Occupancy(64, 64, model.Limiter.WARPS), threads=256
    )
    failed = model.CheckedKernel(NAIVE, "sm_90", "", model.Status.FAILED, "does not compile")
    verdicts = [
        model.CheckVerdict(kernel, model.Verdict.NEW),
        model.CheckVerdict(failed, model.Verdict.BROKEN, reason=failed.reason),
    ]
    store.checks.put(origin, verdicts, toolkit="nvcc 13.0.88", disassembler="nvdisasm 13.5.37")


def put_night(store: Store, night: int, started: datetime) -> None:
    """Store a night that was interrupted while it measured, with a message that has not arrived."""
    store.nights.put_revision(night, commit="def", dirty=True, digest="aa")
    store.nights.put_stage(night, StageRow("doctor", 2, StageState.FAILED, started, 0.5, "no driver", "install one", 5))
    store.nights.put_stage(night, StageRow("run", 4, StageState.RUNNING, started))
    store.nights.end(night, RunState.INTERRUPTED, None)
    message = {"id": 1, "night_id": night, "key": "k", "title": "1 new", "body": "slower", "created_at": started}
    delivery = {"message_id": 1, "target": "team", "attempts": 2, "error": "timeout", "tried_at": started}
    with transaction(store.database.engine, writes=True) as connection:
        connection.execute(insert(Messages).values(message))
        connection.execute(insert(Deliveries).values(delivery))


def put_bisection(store: Store, finding: int, series: model.Series) -> None:
    """Store that the commit ``bbb`` made a case of a finding slower, and that another commit was skipped."""
    commits = [
        model.Commit(name * 10, subject, "Ann <ann@example.com>", datetime(2025, 1, day, tzinfo=UTC), ("0" * 30,))
        for day, (name, subject) in enumerate((("aaa", "fast"), ("bbb", "slow"), ("ccc", "broken")), 1)
    ]
    good, bad, skipped = commits
    old = model.Measurement(TILED, "GPU-1", 0, model.Status.OK, samples_s=(0.25, 0.5, 0.5))
    new = replace(old, replica=1, samples_s=(1.0,))
    trial = model.Trial(good, bad, model.Verdict.REGRESSION, "the case is slower", 2.0, 1.5, 2.5, 1, (old,), (new,))
    store.findings.put_bisection(
        finding,
        model.Bisection(
            series.case,
            GPU,
            series.cache,
            good,
            bad,
            threshold=0.125,
            seed=7,
            metric=series.metric,
            commits=2,
            builds=3,
            compiled=2,
            codes=2,
            verdict=model.Verdict.REGRESSION,
            reason="the case is slower at this commit",
            boundary=1.5,
            culprits=(bad,),
            proof=trial,
            changed=("binary",),
            files=("kernels/tiled.cu",),
            trials=(trial,),
            skipped=(model.SkippedCommit(skipped, "it does not compile"),),
            wall_s=7.0,
        ),
    )


def put_exclusion(store: Store, run: int) -> None:
    """Store that a case was excluded from a run, and included again."""
    store.exclusions.exclude(run, [NAIVE], reason="the GPU was shared", by="ann")
    store.exclusions.include(run, [NAIVE], by="bob")


def put_absence(store: Store, night: int, started: datetime) -> None:
    """Store that the night misses a GPU."""
    gpu = model.Expected(model.ExpectedKind.GPU, "GPU-2", "box", night, started, "kernels", "auto", GPU.model)
    store.expectations.update([gpu], [], night=night, now=started)
    absence = model.Absence("GPU-2 (NVIDIA H100) on host box", "last seen in night 1", (gpu,))
    store.expectations.update([], [absence], night=night, now=started)


def put_remote(store: Store, run: int, at: datetime) -> None:
    """Store a token, that a run was received with it, and an entry of the audit log."""
    secret = "a0" * 32
    token = {
        "name": "box",
        "scopes": "read,write",
        "sha256": model.digest(secret.encode()),
        "made_at": at,
        "made_by": "ann",
    }
    received = {"digest": "cd" * 32, "run_id": run, "token_id": 1, "key": "night 1", "received_at": at, "judged_at": at}
    with transaction(store.database.engine, writes=True) as connection:
        connection.execute(insert(Tokens).values(**token, revoked_by=""))
        connection.execute(insert(ReceivedRuns).values(received))
    store.audit.put(AuditEntry(at, "box", "send a run", "run 1", "127.0.0.1", 201))


def put(
    store: Store,
    run: int,
    measurement: model.Measurement,
    median_s: float | None,
    binary: int | None,
    **of_a_ladder: Any,
) -> None:
    """Store one measurement whose interval is its median."""
    estimate = None if median_s is None else model.Estimate(median_s, median_s, median_s, len(measurement.samples_s))
    environment = model.Environment("580.1", "nvcc 13.0.88", 700.0, parts=(("gpu.ecc", "on"), ("variable.CUDA_X", "1")))
    store.measurements.put(
        run,
        [MeasurementEntry(measurement, environment, model.Work(1, 2, 3, "tf32", 4), estimate, binary, **of_a_ladder)],
    )


def main() -> None:
    """Fill a database and write it as SQL."""
    with tempfile.TemporaryDirectory() as name:
        path, keys = Path(name) / "perfsvc.db", Path(name) / "keys"
        keys.touch(mode=0o600)
        keys.write_text(f"{KEY}\n")
        os.environ["PERFSVC_KEYS"] = str(keys)
        with Store.open(path) as store:
            fill(store)
            put_remote(store, 1, datetime(2025, 1, 3, tzinfo=UTC))
        dump = Path(__file__).parent / f"{Store.check(path).revision}.sql"
        with closing(sqlite3.connect(path)) as connection, dump.open("x") as file:
            file.writelines(f"{statement}\n" for statement in connection.iterdump())


if __name__ == "__main__":
    main()

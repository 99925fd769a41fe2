"""Load a case of an earlier run from the database, so that it can be measured or profiled again without its files."""

from dataclasses import dataclass
from functools import partial

from perfsvc import suite
from perfsvc.errors import UnsupportedError
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import Call, Kind, ReplayRecord, Series
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case as it ran in a run.

    Attributes:
        modules: its binaries, in the order of ``record.modules``.
        bench: the text of its benchmark file.
    """

    record: ReplayRecord
    modules: tuple[bytes, ...]
    bench: str


def stored_case(store: Store, series: Series, run: int, device: str | None) -> StoredCase:
    """Return the case of a series as it ran in a run.

    Args:
        store: holds the run.
        series: names the case.
        run: the number of the run.
        device: the UUID of the device that it ran on; None for any.

    Raises:
        NotMeasuredError: the run holds no binary of the case.
        UsageError: the run holds several binaries of the case, and ``device`` does not choose one.
        UnsupportedError: the case ran Python code that is not in the database.
    """
    record, modules, bench = store.binaries.replay(series.case.id, run, device=device)
    if not modules or record.kind is Kind.HOST or any(isinstance(step, Call) and step.timed for step in record.steps):
        raise UnsupportedError(
            f"{series.case.id} runs Python, and the packages that it called in run {run} are not stored",
            cure="check the old revision out and measure it there",
        )
    return StoredCase(record, tuple(modules[name] for name in record.modules), bench.decode())


def replay_task(case: StoredCase, series: Series, sampling: Sampling) -> Task:
    """Return the task that measures a stored case again on its series' device.

    Raises:
        SuiteError: its benchmark file cannot be used.
    """
    record = case.record
    file = suite.load_text(case.bench, record.case.benchmark)
    arrays = partial(suite.replay_arrays, file, record.case.point, record.seed, record.case.variant)
    return Task(
        device=series.device,
        record=record,
        modules=case.modules,
        cache=series.cache,
        sampling=sampling,
        tolerance=suite.replay_tolerance(file, record.case.point),
        arrays=Recipe(f"{record.bench} {record.case.id} {record.seed}", arrays),
        bench=case.bench if any(isinstance(step, Call) for step in record.steps) else "",
    )

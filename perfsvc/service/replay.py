"""Cases of earlier nights, ready to be measured again from the database alone."""

from dataclasses import dataclass
from functools import partial

from perfsvc import suite
from perfsvc.errors import UnsupportedError
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.measure.worker.sampling.sampler import Sampling
from perfsvc.model import Call, Kind, ReplayRecord, Series
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Stored:
    """A case as it ran one night.

    Attributes:
        modules: its binaries, in the order of ``record.modules``.
        bench: the text of its benchmark file.
    """

    record: ReplayRecord
    modules: tuple[bytes, ...]
    bench: str


def find(store: Store, series: Series, run: int, device: str | None) -> Stored:
    """A series' case as it ran in a run.

    Args:
        store: where it is.
        series: of which case.
        run: when.
        device: on which one (UUID); None for whichever it was.

    Raises:
        NotMeasuredError: the run holds no binary of it.
        UsageError: it ran as several there, and ``device`` does not say which.
        UnsupportedError: what it ran is not in the database.
    """
    record, modules, bench = store.replay(series.case.id, run, device=device)
    if not modules or record.kind is Kind.HOST or any(isinstance(step, Call) and step.timed for step in record.steps):
        raise UnsupportedError(
            f"{series.case.id} runs Python, and the packages that it called in run {run} are not stored",
            cure="check the old revision out and measure it there",
        )
    return Stored(record, tuple(modules[name] for name in record.modules), bench.decode())


def task(stored: Stored, series: Series, sampling: Sampling) -> Task:
    """What measures it again on its series' device; raises ``SuiteError`` where its benchmark file cannot be used."""
    record = stored.record
    file = suite.load_text(stored.bench, record.case.benchmark)
    arrays = partial(suite.replay_arrays, file, record.case.point, record.seed, record.case.variant)
    return Task(
        device=series.device,
        record=record,
        modules=stored.modules,
        cache=series.cache,
        sampling=sampling,
        tolerance=suite.replay_tolerance(file, record.case.point),
        arrays=Recipe(f"{record.bench} {record.case.id} {record.seed}", arrays),
        bench=stored.bench if any(isinstance(step, Call) for step in record.steps) else "",
    )

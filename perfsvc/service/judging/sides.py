"""What the two sides of a judgement have in common beside their times: code, source, compiler, driver."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache

from perfsvc.elf import code_digest
from perfsvc.judge import COMPARED, Sides
from perfsvc.model import Call, Environment, Judgement, ReplayRecord, Series
from perfsvc.store import BinaryRow, Store


class SidesOf:
    """Tells what is known of the sides of each judgement that compares two levels; what it reads, it reads once.

    Absent is what cannot be known: a level that another board lent, a case without a binary, and Python variants, whose
    code is in packages that nobody stored.

    The code is the same where the binaries are the same, or where their replay records are equal but for the case's
    name and the modules are equal in all that runs (``elf.code_digest``).

    Args:
        store: holds the runs of the judgements, all of which have ended.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._built = cache(store.built)
        self._binaries: dict[int, BinaryRow] = {}
        self._code = _Code(store)

    def __call__(self, judgements: Iterable[Judgement]) -> dict[Series, Sides]:
        """The sides of some judgements."""
        pairs: dict[Series, _Pair] = {}
        for judgement in judgements:
            if judgement.verdict not in COMPARED or judgement.baseline_run is None or judgement.candidate_run is None:
                continue
            place = (judgement.series.device, judgement.series.case, judgement.series.mode)
            before, after = (self._built(run).get(place) for run in (judgement.baseline_run, judgement.candidate_run))
            if before and after and before.binary is not None and after.binary is not None:
                pairs[judgement.series] = _Pair(before.binary, after.binary, before.environment, after.environment)
        self._read({binary for pair in pairs.values() for binary in (pair.old, pair.new)})
        told = {series: _sides(pair, self._binaries, self._code) for series, pair in pairs.items()}
        return {series: sides for series, sides in told.items() if sides}

    def _read(self, binaries: AbstractSet[int]) -> None:
        if unknown := binaries - self._binaries.keys():
            self._binaries |= self._store.binaries(unknown)


def sides_of(store: Store, judgements: Iterable[Judgement]) -> dict[Series, Sides]:
    """What ``SidesOf`` tells of some judgements, for whoever asks once."""
    return SidesOf(store)(judgements)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The binaries of both sides by their ids, and where they ran."""

    old: int
    new: int
    before: Environment
    after: Environment


def _sides(pair: _Pair, binaries: Mapping[int, BinaryRow], code: "_Code") -> Sides | None:
    old, new, before, after = binaries[pair.old], binaries[pair.new], pair.before, pair.after
    if _calls(old.record) or _calls(new.record):
        return None
    same_launch = launch_of(old.record) == launch_of(new.record)
    return Sides(
        code=same_launch and code.same(old.record, new.record),
        source=same_launch and old.sources == new.sources,
        toolkit=before.toolkit == after.toolkit,
        board=(before.driver, before.power_limit_w) == (after.driver, after.power_limit_w),
    )


def _calls(record: ReplayRecord) -> bool:
    return any(isinstance(step, Call) for step in record.steps)


def launch_of(record: ReplayRecord) -> ReplayRecord:
    """All of a replay record that is not the compiled code; a variant's name is no part of what it does."""
    return replace(record, case=replace(record.case, variant=""), modules=())


class _Code:
    """Compares compiled modules, each read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._digests: dict[str, str] = {}

    def same(self, old: ReplayRecord, new: ReplayRecord) -> bool:
        """Whether two records' modules are the same code, whatever their bytes are."""
        if old.modules == new.modules:
            return True
        unknown = {*old.modules, *new.modules} - self._digests.keys()
        self._digests |= {name: code_digest(code) for name, code in self._store.modules(unknown).items()}
        return [self._digests[one] for one in old.modules] == [self._digests[one] for one in new.modules]

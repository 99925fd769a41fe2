"""What the two sides of a judgement have in common beside their times: code, source, compiler, driver."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice

from perfsvc.elf import code_digest
from perfsvc.judge import COMPARED, SameOnBothSides
from perfsvc.model import Call, Environment, Judgement, ReplayRecord, Series
from perfsvc.store import BinaryRow, Built, Place, Store

AT_ONCE = 64
"""How many compiled modules are held at once: one may have megabytes."""


class SidesOf:
    """Tells what is known of the sides of each judgement that compares two levels; what it reads, it reads once.

    Absent is what cannot be known: a level that another GPU lent, a case without a binary, and Python variants, whose
    code is in packages that nobody stored.

    The code is the same where the binaries are the same, or where their replay records are equal but for the case's
    name and the modules are equal in all that runs (``elf.code_digest``).

    Args:
        store: holds the runs of the judgements, all of which have ended.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._built: dict[tuple[int, Place], Built | None] = {}
        self._code = _Code(store)

    def __call__(self, judgements: Iterable[Judgement]) -> dict[Series, SameOnBothSides]:
        """The sides of some judgements."""
        places = list(_places(judgements))
        self._read({place for _, *both in places for place in both})
        pairs: dict[Series, _Pair] = {}
        for series, *both in places:
            before, after = map(self._built.__getitem__, both)
            if before and after and before.binary is not None and after.binary is not None:
                pairs[series] = _Pair(before.binary, after.binary, before.environment, after.environment)
        self._code.compare({pair.binaries for pair in pairs.values()})
        told = {series: _sides(pair, self._code.common[pair.binaries]) for series, pair in pairs.items()}
        return {series: sides for series, sides in told.items() if sides}

    def _read(self, places: AbstractSet[tuple[int, Place]]) -> None:
        if unknown := places - self._built.keys():
            self._built |= dict.fromkeys(unknown) | self._store.built_of(unknown)


def sides_of(store: Store, judgements: Iterable[Judgement]) -> dict[Series, SameOnBothSides]:
    """What ``SidesOf`` tells of some judgements, for whoever asks once."""
    return SidesOf(store)(judgements)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The binaries of both sides by their ids, and where they ran."""

    old: int
    new: int
    before: Environment
    after: Environment

    @property
    def binaries(self) -> tuple[int, int]:
        return self.old, self.new


@dataclass(frozen=True, slots=True)
class _Common:
    """Whether two binaries are the same code, and of the same source."""

    code: bool
    source: bool


def _places(judgements: Iterable[Judgement]) -> Iterator[tuple[Series, tuple[int, Place], tuple[int, Place]]]:
    """Where either side of each judgement ran that compares two levels."""
    for one in judgements:
        if one.verdict in COMPARED and one.baseline_run is not None and one.candidate_run is not None:
            place = (one.series.device, one.series.case, one.series.cache)
            yield one.series, (one.baseline_run, place), (one.candidate_run, place)


def _sides(pair: _Pair, common: _Common | None) -> SameOnBothSides | None:
    if common is None:
        return None
    before, after = pair.before, pair.after
    return SameOnBothSides(
        code=common.code,
        source=common.source,
        toolkit=before.toolkit == after.toolkit,
        device=(before.driver, before.power_limit_w) == (after.driver, after.power_limit_w),
    )


def _calls(record: ReplayRecord) -> bool:
    return any(isinstance(step, Call) for step in record.steps)


def launch_of(record: ReplayRecord) -> ReplayRecord:
    """All of a replay record that is not the compiled code; a variant's name is no part of what it does."""
    return replace(record, case=replace(record.case, variant=""), modules=())


class _Code:
    """Compares binaries: each pair once, by records and modules that are read once.

    Attributes:
        common: what the pairs that were compared have in common, by their ids; None where nobody can know.
    """

    def __init__(self, store: Store) -> None:
        self.common: dict[tuple[int, int], _Common | None] = {}
        self._store = store
        self._binaries: dict[int, BinaryRow] = {}
        self._digests: dict[str, str] = {}

    def compare(self, pairs: AbstractSet[tuple[int, int]]) -> None:
        """Compares those of some pairs that were not yet; what they need is read at once."""
        unknown = pairs - self.common.keys()
        self._read({binary for pair in unknown for binary in pair} - self._binaries.keys())
        rows = {(old, new): (self._binaries[old], self._binaries[new]) for old, new in unknown}
        known = {pair: both for pair, both in rows.items() if not any(_calls(one.record) for one in both)}
        alike = {pair: both for pair, both in known.items() if launch_of(both[0].record) == launch_of(both[1].record)}
        differ = [[old.record.modules, new.record.modules] for old, new in alike.values()]
        self._read_modules({name for old, new in differ if old != new for name in (*old, *new)})
        self.common |= dict.fromkeys(unknown) | dict.fromkeys(known, _Common(code=False, source=False))
        self.common |= {pair: self._of_alike(old, new) for pair, (old, new) in alike.items()}

    def _of_alike(self, old: BinaryRow, new: BinaryRow) -> _Common:
        """What two binaries that are launched alike have in common, whatever the bytes of their modules are."""
        before, after = old.record.modules, new.record.modules
        same = before == after or [self._digests[one] for one in before] == [self._digests[one] for one in after]
        return _Common(same, old.sources == new.sources)

    def _read(self, binaries: AbstractSet[int]) -> None:
        if binaries:
            self._binaries |= self._store.binaries(binaries)

    def _read_modules(self, names: AbstractSet[str]) -> None:
        unknown = iter(names - self._digests.keys())
        while some := list(islice(unknown, AT_ONCE)):
            self._digests |= {name: code_digest(code) for name, code in self._store.modules(some).items()}

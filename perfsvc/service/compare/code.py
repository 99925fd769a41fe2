"""What the two runs of a judgement have in common besides their times: code, source, compiler, driver."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice

from perfsvc.elf import code_digest
from perfsvc.judge import COMPARED, SameOnBothSides
from perfsvc.model import Call, Judgement, ReplayRecord, Series
from perfsvc.store import Store

MODULES_AT_ONCE = 64
"""How many compiled modules are held in memory at once: a module may have megabytes."""

Pair = tuple[int, int]
"""The ids of a baseline's binary and a candidate's."""


def sides_of(store: Store, judgements: Iterable[Judgement]) -> dict[Series, SameOnBothSides]:
    """Return what both runs of each judgement have in common, for the judgements that compare two levels.

    A series is absent if this cannot be known: its level was borrowed from another device, its case has no binary, or
    its variant calls Python, whose packages are not stored.

    Args:
        store: the database, with the runs, all of which have ended.
        judgements: the judgements, at most one for each series.
    """
    cases = {
        series: [(run, (series.device, series.case, series.cache)) for run in (baseline_run, candidate_run)]
        for series, baseline_run, candidate_run in _compared(judgements)
    }
    built = store.binaries.of_cases({case for both in cases.values() for case in both}) if cases else {}
    sides = {}
    pairs: dict[Series, Pair] = {}
    for series, (baseline, candidate) in cases.items():
        old, new = built.get(baseline), built.get(candidate)
        if old and new and old.binary is not None and new.binary is not None:
            pairs[series] = (old.binary, new.binary)
    compared = _compare_binaries(store, set(pairs.values()))
    for series, pair in pairs.items():
        if pair in compared:
            same_code, same_source = compared[pair]
            before, after = (built[case].environment for case in cases[series])
            sides[series] = SameOnBothSides(
                code=same_code,
                source=same_source,
                toolkit=before.toolkit == after.toolkit,
                device=(before.driver, before.power_limit_w) == (after.driver, after.power_limit_w),
            )
    return sides


def _compared(judgements: Iterable[Judgement]) -> Iterable[tuple[Series, int, int]]:
    """Yield the series, baseline run and candidate run of each judgement that compares two levels."""
    for judgement in judgements:
        if judgement.verdict in COMPARED and judgement.baseline_run is not None and judgement.candidate_run is not None:
            yield judgement.series, judgement.baseline_run, judgement.candidate_run


def _compare_binaries(store: Store, pairs: AbstractSet[Pair]) -> dict[Pair, tuple[bool, bool]]:
    """Return whether each two binaries have the same code, and the same source; without pairs that call Python.

    The code is the same if the replay records differ in nothing but the case's name, and the modules are equal in all
    that runs (``elf.code_digest``).
    """
    binaries = store.binaries.get({binary for pair in pairs for binary in pair}) if pairs else {}
    rows = {pair: (binaries[pair[0]], binaries[pair[1]]) for pair in pairs}
    rows = {pair: both for pair, both in rows.items() if not any(_calls_python(row.record) for row in both)}
    alike = {pair: both for pair, both in rows.items() if launch_of(both[0].record) == launch_of(both[1].record)}
    other = [
        module
        for old, new in alike.values()
        if old.record.modules != new.record.modules
        for module in (*old.record.modules, *new.record.modules)
    ]
    digests = _code_digests(store, set(other))

    def same_code(old: ReplayRecord, new: ReplayRecord) -> bool:
        return old.modules == new.modules or [digests[name] for name in old.modules] == [
            digests[name] for name in new.modules
        ]

    compared = dict.fromkeys(rows, (False, False))
    for pair, (old, new) in alike.items():
        compared[pair] = (same_code(old.record, new.record), old.sources == new.sources)
    return compared


def _calls_python(record: ReplayRecord) -> bool:
    return any(isinstance(step, Call) for step in record.steps)


def launch_of(record: ReplayRecord) -> ReplayRecord:
    """Return a replay record without its modules and without the name of its variant: all that is not compiled code."""
    return replace(record, case=replace(record.case, variant=""), modules=())


def _code_digests(store: Store, modules: Collection[str]) -> dict[str, str]:
    """Return the digest of the code in each module."""
    digests: dict[str, str] = {}
    names = iter(modules)
    while some := list(islice(names, MODULES_AT_ONCE)):
        digests |= {name: code_digest(code) for name, code in store.binaries.modules(some).items()}
    return digests
